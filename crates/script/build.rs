//! Patches the vendored Lua and compiles it, with the glue, as one translation unit.
//!
//! ```text
//! lua/src      Lua 5.1.5 as it was released, but for the folder in `lua_tmpnam` (`luaconf.h`), which only the OS library uses: that
//!              is not vendored
//! lua/patches  unified diffs, applied in the order of their names; what stands before the first `---` says why
//! lua/glue     the binding's side in C
//! ```
//! A patch fits to the line or the build fails: there is no fuzz.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{env, fs};

type Lines = Vec<Vec<u8>>;

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it")).join("lua");
    let mut sources = read_sources(Path::new("lua/src"));
    for path in sorted(Path::new("lua/patches")) {
        apply(&path, &mut sources);
    }
    fs::create_dir_all(&out).expect("the folder for output can be made");
    for (name, lines) in &sources {
        fs::write(out.join(name), lines.concat()).expect("a patched source can be written");
    }
    let mut build = cc::Build::new();
    build.file("lua/glue/all.c").include(&out).include("lua");
    build.opt_level(3).force_frame_pointer(false).flag_if_supported("-fno-math-errno").warnings(false);
    if env::var_os("CARGO_CFG_DEBUG_ASSERTIONS").is_some() {
        build.define("LUA_USE_APICHECK", None).define("lua_assert", "assert");
    }
    // Fuzzing: what C reads and writes is watched as what Rust does.
    if env::var("CARGO_CFG_SANITIZE").is_ok_and(|names| names.split(',').any(|name| name == "address")) {
        build.flag("-fsanitize=address").flag("-fno-omit-frame-pointer");
    }
    build.compile("isotherm_lua");
    println!("cargo::rerun-if-changed=lua");
    println!("cargo::rerun-if-changed=build.rs");
}

fn sorted(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap_or_else(|why| panic!("{}: {why}", folder.display()))
        .map(|entry| entry.expect("the folder can be read").path())
        .collect();
    paths.sort();
    paths
}

fn read_sources(folder: &Path) -> BTreeMap<String, Lines> {
    sorted(folder)
        .into_iter()
        .map(|path| {
            let name = path.file_name().expect("a file has a name").to_string_lossy().into_owned();
            (name, lines_of(&path))
        })
        .collect()
}

/// Each with its end.
fn lines_of(path: &Path) -> Lines {
    let bytes = fs::read(path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
    bytes.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect()
}

fn apply(path: &Path, sources: &mut BTreeMap<String, Lines>) {
    let patch = lines_of(path);
    let mut at = 0;
    let mut file: Option<File> = None;
    while at < patch.len() {
        let line = &patch[at];
        if let Some(name) = line.strip_prefix(b"+++ b/") {
            if let Some(done) = file.take() {
                done.finish(sources);
            }
            file = Some(File::open(String::from_utf8_lossy(name).trim_end(), sources));
            at += 1;
        } else if line.starts_with(b"@@ -") {
            let file = file.as_mut().unwrap_or_else(|| panic!("{}: a change of no file", path.display()));
            at = file.change(&patch, at, path);
        } else {
            at += 1;
        }
    }
    file.unwrap_or_else(|| panic!("{}: it changes nothing", path.display())).finish(sources);
}

/// A file that is being patched: its old lines up to `taken` are in `new`, changed.
struct File {
    name: String,
    old: Lines,
    taken: usize,
    new: Lines,
}

impl File {
    fn open(name: &str, sources: &mut BTreeMap<String, Lines>) -> File {
        let old = sources.remove(name).unwrap_or_else(|| panic!("no source is called {name}"));
        File { name: name.to_owned(), old, taken: 0, new: Lines::new() }
    }

    /// One change, whose first line is `@@ -from,...`; the number of the line behind it.
    fn change(&mut self, patch: &[Vec<u8>], at: usize, path: &Path) -> usize {
        let header = String::from_utf8_lossy(&patch[at]).into_owned();
        let [old_from, old_count, _, new_count] = ranges(&header);
        while self.taken + 1 < old_from {
            self.keep();
        }
        let (mut old_left, mut new_left, mut at) = (old_count, new_count, at + 1);
        while old_left > 0 || new_left > 0 {
            let (kind, text) = patch[at].split_first().expect("a line of a change has a mark");
            let fits = || self.old.get(self.taken).is_some_and(|line| line == text);
            match kind {
                b'+' => {
                    self.new.push(text.to_vec());
                    new_left -= 1;
                }
                b' ' | b'-' if !fits() => {
                    panic!("{} does not fit {} at line {}", path.display(), self.name, self.taken + 1)
                }
                b' ' => {
                    self.keep();
                    (old_left, new_left) = (old_left - 1, new_left - 1);
                }
                b'-' => {
                    self.taken += 1;
                    old_left -= 1;
                }
                _ => panic!("{}: a change that ends too soon: {header}", path.display()),
            }
            at += 1;
        }
        at
    }

    fn keep(&mut self) {
        self.new.push(self.old[self.taken].clone());
        self.taken += 1;
    }

    fn finish(mut self, sources: &mut BTreeMap<String, Lines>) {
        while self.taken < self.old.len() {
            self.keep();
        }
        sources.insert(self.name, self.new);
    }
}

/// The four numbers of `@@ -1,2 +3,4 @@`; a count that is left out is 1.
fn ranges(header: &str) -> [usize; 4] {
    let mut words = header.split(' ').skip(1);
    let mut range = |sign: char| {
        let word = words.next().and_then(|word| word.strip_prefix(sign)).expect("a range with its sign");
        let (from, count) = word.split_once(',').unwrap_or((word, "1"));
        [from, count].map(|number| number.parse::<usize>().expect("a number of lines"))
    };
    let [old_from, old_count] = range('-');
    let [new_from, new_count] = range('+');
    [old_from, old_count, new_from, new_count]
}
