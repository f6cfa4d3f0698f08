//! The peer: the newest Valkey that Debian carries, installed for this project alone.
//!
//! Debian's own `apt-get` does the work, but with lists, cache and package status of its own and an empty
//! machine in mind: it then names every package down to the C library. They are unpacked into
//! `target/peers/root`, nothing is installed on the machine, and no root rights are needed. A program of that
//! folder runs with the loader and the libraries next to it, through a small wrapper in `target/peers/bin`,
//! so it sees this machine's files and ports and may be newer than its system.
//!
//! ```text
//! target/peers/apt      lists, packages
//! target/peers/root     what the packages hold
//! target/peers/bin      wrappers: valkey-server, valkey-cli, ..., tclsh, redis-cli, redis-server
//! target/peers/source   Valkey's source, for its test suite
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Fallible, place, run};

const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// Debian's development, which carries the newest of each.
const NEWEST: &str = "sid";
/// Older servers that a Debian release carries: a name, the release, the package and its program.
const OLDER: [(&str, &str, &str); 2] =
    [("valkey-server-8.1", "trixie", "valkey-server"), ("redis-server-7.0", "bookworm", "redis-server")];
const MIRROR: &str = "http://deb.debian.org/debian";
const PACKAGES: [&str; 3] = ["valkey-server", "valkey-tools", "tcl"];
const PROGRAMS: [&str; 6] =
    ["valkey-server", "valkey-cli", "valkey-benchmark", "valkey-check-rdb", "valkey-check-aof", "tclsh"];

pub fn command(args: &[String]) -> Fallible {
    match args.first().map(String::as_str) {
        None | Some("install") => {
            let bin = valkey()?;
            println!("programs {}", bin.display());
            print!("{}", run::quiet(Command::new(bin.join("valkey-server")).arg("--version"))?);
            Ok(())
        }
        Some("bin") => {
            println!("{}", valkey()?.display());
            Ok(())
        }
        Some("source") => {
            println!("{}", source()?.display());
            Ok(())
        }
        Some("redis") => {
            println!("{}", redis_server()?.display());
            Ok(())
        }
        Some(other) => Err(format!("peers knows install, bin, redis and source, not '{other}'")),
    }
}

/// The folder of Valkey's programs, installed first if need be.
pub fn valkey() -> Fallible<PathBuf> {
    let bin = place::peers().join("bin");
    if !ready("root") {
        eprintln!("installing Debian's newest Valkey into {}", place::peers().display());
        install("root", NEWEST, &PACKAGES, &PROGRAMS.map(|name| (name, name)))?;
    }
    Ok(bin)
}

/// Redis' own command line, into the same folder; another package, since Valkey's excludes it.
pub fn redis_cli() -> Fallible {
    if ready("redis") {
        return Ok(());
    }
    eprintln!("installing Debian's newest redis-cli into {}", place::peers().display());
    install("redis", NEWEST, &["redis-tools"], &[("redis-cli", "redis-cli")])
}

/// A package of this machine's own release, unpacked into the folder `part` and not installed.
pub fn unpack_from_machine(part: &str, package: &str) -> Fallible<PathBuf> {
    if !ready(part) {
        let folder = fresh(part)?;
        run::quiet(Command::new("apt-get").args(["download", package]).current_dir(&folder))?;
        let archive = find(&folder, |name| name.ends_with(".deb")).ok_or("apt-get fetched no package")?;
        run::quiet(Command::new("dpkg-deb").arg("--extract").arg(archive).arg(&folder))?;
        mark(part)?;
    }
    Ok(place::peers().join(part))
}

/// Redis' server, which excludes Valkey's package as its command line does; where it is.
pub fn redis_server() -> Fallible<PathBuf> {
    if !ready("redis-server") {
        eprintln!("installing Debian's newest Redis into {}", place::peers().display());
        install("redis-server", NEWEST, &["redis-server"], &[("redis-server", "redis-server")])?;
    }
    Ok(place::peers().join("bin/redis-server"))
}

/// Servers of older versions, or why there is none.
pub fn older() -> Vec<Fallible<PathBuf>> {
    let install_one = |(name, suite, package): &(&str, &str, &str)| {
        if !ready(name) {
            eprintln!("installing {name} of Debian's {suite} into {}", place::peers().display());
            install(name, suite, &[package], &[(package, name)]).map_err(|why| format!("{name}: {why}"))?;
        }
        Ok(place::peers().join("bin").join(name))
    };
    OLDER.iter().map(install_one).collect()
}

/// Unpacks packages of a release into the folder `part`, and makes their programs callable by other names.
fn install(part: &str, suite: &str, packages: &[&str], programs: &[(&str, &str)]) -> Fallible {
    let packages = download(suite, packages)?;
    let root = fresh(part)?;
    for package in packages {
        run::quiet(Command::new("dpkg-deb").arg("--extract").arg(&package).arg(&root))?;
    }
    write_wrappers(&root, programs)?;
    mark(part)
}

/// Valkey's source, unpacked; its test suite runs with the `tclsh` of `valkey()`.
pub fn source() -> Fallible<PathBuf> {
    let folder = place::peers().join("source");
    if !ready("source") {
        eprintln!("fetching Valkey's source into {}", folder.display());
        let apt = Apt::new(NEWEST)?;
        let fetched = fresh("source-package")?;
        run::quiet(apt.get().args(["source", "--download-only", "valkey"]).current_dir(&fetched))?;
        let archive = find(&fetched, |name| name.contains(".orig.tar."))
            .ok_or("Debian's source package holds no .orig.tar")?;
        let folder = fresh("source")?;
        run::quiet(
            Command::new("tar").arg("xf").arg(archive).args(["--strip-components=1", "-C"]).arg(&folder),
        )?;
        mark("source")?;
    }
    Ok(folder)
}

/// An `apt-get` with state of its own.
struct Apt {
    folder: PathBuf,
}

impl Apt {
    fn new(suite: &str) -> Fallible<Apt> {
        for program in ["apt-get", "dpkg-deb"] {
            if place::in_path(program).is_none() {
                return Err(format!(
                    "cannot install Valkey: no `{program}` on this machine (it comes from Debian's packages)"
                ));
            }
        }
        if !Path::new(KEYRING).is_file() {
            return Err(
                "cannot install Valkey: install debian-archive-keyring first, it checks Debian's packages"
                    .to_string(),
            );
        }
        let apt = Apt { folder: place::peers().join("apt") };
        for part in ["lists/partial", "cache/archives/partial", "parts"] {
            make(&apt.folder.join(part))?;
        }
        write(&apt.folder.join("status"), "")?;
        write(&apt.folder.join("apt.conf"), &configuration(&apt.folder))?;
        let mirror = std::env::var("ISOTHERM_DEBIAN_MIRROR").unwrap_or_else(|_| MIRROR.to_string());
        let by = format!("[signed-by={KEYRING}] {mirror} {suite} main\n");
        write(&apt.folder.join("sources.list"), &format!("deb {by}deb-src {by}"))?;
        run::quiet(apt.get().arg("update"))
            .map_err(|why| format!("cannot install Valkey: no package lists from {mirror}: {why}"))?;
        Ok(apt)
    }

    fn get(&self) -> Command {
        let mut command = Command::new("apt-get");
        command.args(["-qq", "-y", "--no-install-recommends", "-c"]).arg(self.folder.join("apt.conf"));
        command
    }
}

/// Everything that would touch the machine points into our folder; its proxy settings stay in force.
fn configuration(folder: &Path) -> String {
    let folder = folder.display();
    format!(
        "Dir::State \"{folder}\";\n\
         Dir::State::lists \"{folder}/lists\";\n\
         Dir::State::status \"{folder}/status\";\n\
         Dir::Cache \"{folder}/cache\";\n\
         Dir::Etc::sourcelist \"{folder}/sources.list\";\n\
         Dir::Etc::sourceparts \"{folder}/parts\";\n\
         Dir::Etc::preferencesparts \"{folder}/parts\";\n\
         // Run as root, apt would fetch as another user, who may not write into this folder.\n\
         APT::Sandbox::User \"root\";\n\
         // A list that cannot be fetched is a failure, not a warning.\n\
         APT::Update::Error-Mode \"any\";\n\
         // A mirror that does not answer is a reason to skip what needs it, not to wait for it.\n\
         Acquire::http::Timeout \"20\";\n\
         Acquire::https::Timeout \"20\";\n\
         Acquire::Retries \"2\";\n\
         // A container's own hooks empty the machine's cache.\n\
         #clear APT::Update::Post-Invoke;\n\
         #clear APT::Update::Post-Invoke-Success;\n"
    )
}

/// Fetches packages and all that they need; their files.
fn download(suite: &str, packages: &[&str]) -> Fallible<Vec<PathBuf>> {
    let apt = Apt::new(suite)?;
    let archives = apt.folder.join("cache/archives");
    // Packages of an earlier, interrupted run may be of other versions.
    fs::remove_dir_all(&archives).map_err(|why| format!("cannot empty {}: {why}", archives.display()))?;
    make(&archives.join("partial"))?;
    run::quiet(apt.get().args(["--download-only", "install"]).args(packages))?;
    let packages: Vec<PathBuf> = entries(&archives)
        .into_iter()
        .filter(|file| file.extension().is_some_and(|end| end == "deb"))
        .collect();
    if packages.is_empty() { Err("apt-get fetched no package".to_string()) } else { Ok(packages) }
}

/// A few lines for each program: the packages' own loader, with the packages' own libraries.
fn write_wrappers(root: &Path, programs: &[(&str, &str)]) -> Fallible {
    use std::os::unix::fs::PermissionsExt;
    // Older packages have libraries outside of `usr` too.
    let folders: Vec<PathBuf> = ["usr/lib", "lib"]
        .iter()
        .filter_map(|lib| find(&root.join(lib), |name| name.ends_with("-linux-gnu")))
        .collect();
    let loader = folders.iter().find_map(|folder| find(folder, |name| name.starts_with("ld-linux-")));
    let loader = loader.ok_or("the packages hold no loader")?;
    let libraries: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
    let bin = place::peers().join("bin");
    make(&bin)?;
    for &(name, called) in programs {
        let program = program(root, name);
        // Tcl looks for its library where the package would be installed.
        let library = match name {
            "tclsh" => format!(
                "TCL_LIBRARY='{}'\nexport TCL_LIBRARY\n",
                root.join("usr/share/tcltk/tcl8.6").display()
            ),
            _ => String::new(),
        };
        let text = format!(
            "#!/bin/sh\n{library}exec '{}' --library-path '{}' --argv0 \"$0\" '{}' \"$@\"\n",
            loader.display(),
            libraries.join(":"),
            program.display()
        );
        let wrapper = bin.join(called);
        write(&wrapper, &text)?;
        fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755))
            .map_err(|why| format!("cannot make {} executable: {why}", wrapper.display()))?;
    }
    Ok(())
}

/// The path at which a package puts its program. Debian's server is a link to the program that checks files,
/// by an absolute path in some releases.
fn program(root: &Path, name: &str) -> PathBuf {
    let bin = root.join("usr/bin");
    match name {
        "tclsh" => bin.join("tclsh8.6"),
        _ if bin.join(name).exists() => bin.join(name),
        name => bin.join(name.replace("-server", "-check-rdb")),
    }
}

fn ready(part: &str) -> bool {
    place::peers().join(format!("{part}.ready")).exists()
}

fn mark(part: &str) -> Fallible {
    write(&place::peers().join(format!("{part}.ready")), "")
}

/// An empty folder of that name.
fn fresh(part: &str) -> Fallible<PathBuf> {
    let folder = place::peers().join(part);
    let _ = fs::remove_dir_all(&folder);
    make(&folder)?;
    Ok(folder)
}

fn make(folder: &Path) -> Fallible {
    fs::create_dir_all(folder).map_err(|why| format!("cannot make {}: {why}", folder.display()))
}

fn write(file: &Path, text: &str) -> Fallible {
    fs::write(file, text).map_err(|why| format!("cannot write {}: {why}", file.display()))
}

fn find(folder: &Path, wanted: impl Fn(&str) -> bool) -> Option<PathBuf> {
    entries(folder).into_iter().find(|file| wanted(&file.file_name().unwrap_or_default().to_string_lossy()))
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let Ok(list) = fs::read_dir(folder) else { return Vec::new() };
    let mut files: Vec<PathBuf> = list.flatten().map(|entry| entry.path()).collect();
    files.sort();
    files
}
