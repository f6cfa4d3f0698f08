//! Building and starting the project's own programs: the server, the benchmark, the stress run, the
//! comparison with Valkey.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Fallible, needs, peers, place, run, testing};

/// Builds the server and becomes it, so that signals and the exit code are the server's own. With `--release`
/// in front it is the release; without it what is built in a fraction of that time.
pub fn start(args: &[String]) -> Fallible {
    let (release, args) = match args {
        [flag, rest @ ..] if flag == "--release" => (true, rest),
        args => (false, args),
    };
    let profile = match std::env::var("ISOTHERM_PROFILE") {
        Ok(profile) => profile,
        Err(_) if release => "release".to_string(),
        Err(_) => "quick".to_string(),
    };
    println!("== building the server, profile `{profile}`: {}", how_long(&profile));
    let server = build_with("isotherm", "isotherm-server", &profile)?;
    println!("{}", next_steps(&server, args, &profile));
    let why = Command::new(&server).args(args).exec();
    Err(format!("cannot start {}: {why}", server.display()))
}

fn how_long(profile: &str) -> &'static str {
    match profile {
        "release" => "the first time takes some four minutes on two cores",
        "quick" => {
            "the first time takes some four minutes on two cores; `cargo xtask start --release` builds the fastest"
        }
        _ => "the first time takes minutes",
    }
}

/// Text that says what to type once the server runs, and what to read next.
fn next_steps(server: &Path, args: &[String], profile: &str) -> String {
    let port = option(args, "--port").unwrap_or("6379");
    let at = if port == "6379" { String::new() } else { format!(" -p {port}") };
    let release = match profile {
        "release" => String::new(),
        _ => "\n   the release, which is faster:  cargo xtask start --release".to_string(),
    };
    format!(
        "== starting {} on port {port}; Ctrl-C ends it. In another terminal:

   cargo run --profile quick -p isotherm-cli --bin isotherm-cli --{at} SET greeting hello EX 60
   valkey-cli{at} GET greeting    (any client of Valkey or Redis will do)

   parameters: docs/config.md    what differs from Valkey: COMPAT.md    the tests: cargo xtask test{release}
",
        server.display()
    )
}

/// The value after the last `name` among the server's arguments.
fn option<'a>(args: &'a [String], name: &str) -> Option<&'a str> {
    let at = args.iter().rposition(|arg| arg == name)?;
    args.get(at + 1).map(String::as_str)
}

pub fn bench(args: &[String]) -> Fallible {
    let bench = build("isotherm-bench", "isotherm-bench")?;
    if args.iter().any(|arg| arg == "--help") || args.is_empty() {
        return run::loud(Command::new(bench).args(args));
    }
    let mut command = Command::new(bench);
    command.args(args).current_dir(place::root());
    // Nothing is compared with Valkey there, and a build that is linked as a whole is not needed to count.
    if args[0] == "instructions" {
        if !args.iter().any(|arg| arg == "--isotherm") {
            command.env("ISOTHERM_SERVER", build_with("isotherm", "isotherm-server", "fast")?);
        }
        return run::loud(&mut command);
    }
    command.env("ISOTHERM_SERVER", build("isotherm", "isotherm-server")?);
    command.env("ISOTHERM_PEER_BIN", peers::valkey()?);
    run::loud(&mut command)
}

/// Runs the server with its assertions, under everything at once. The build is left out where `--server`
/// names another one. The exit code is the program's own: it distinguishes faults from late replies. With
/// `--if-possible` first, a machine on which Valkey cannot be installed is a reported skip of `sentinel`.
pub fn stress(args: &[String]) -> Fallible {
    let (optional, args) = if_possible(args);
    let others = ["kills", "liveness", "pressure", "sentinel"];
    let other = args.first().map(String::as_str).filter(|first| others.contains(first));
    let sentinels = match (other == Some("sentinel")).then(peers::valkey) {
        Some(Err(why)) if optional => {
            println!("skipped: sentinels of Valkey: {why}");
            return Ok(());
        }
        bin => bin.transpose()?,
    };
    let stress = testing::program("isotherm-stress")?;
    let mut command = Command::new(stress);
    command.args(args).current_dir(place::root());
    if !args.iter().any(|arg| arg == "--help" || arg == "--server") {
        command.env("ISOTHERM_SERVER", testing::program("isotherm-server")?);
    }
    if let Some(folder) = sentinels {
        command.env("ISOTHERM_PEER_BIN", folder);
    }
    if other.is_none() && !args.iter().any(|arg| arg == "--keep") {
        command.arg("--keep").arg(place::target().join("stress-runs"));
    }
    let why = command.exec();
    Err(format!("cannot start {}: {why}", command.get_program().display()))
}

fn if_possible(args: &[String]) -> (bool, &[String]) {
    match args {
        [flag, rest @ ..] if flag == "--if-possible" => (true, rest),
        args => (false, args),
    }
}

/// With `--if-possible` first, a machine on which Valkey cannot be installed is a reported skip, not a
/// failure. `transfer --with-redis` installs Redis too; where it cannot be installed, that part is a reported
/// skip.
pub fn conformance(args: &[String]) -> Fallible {
    let (optional, args) = if_possible(args);
    let (with_redis, args) = match args {
        [what, flag, rest @ ..] if what == "transfer" && flag == "--with-redis" => {
            (true, [std::slice::from_ref(what), rest].concat())
        }
        args => (false, args.to_vec()),
    };
    let is_suite = args.first().is_some_and(|first| first == "suite");
    let conformance = build("isotherm-conformance", "isotherm-conformance")?;
    if args.iter().any(|arg| arg == "--help") || args.is_empty() {
        return run::loud(Command::new(conformance).args(args));
    }
    let bin = match peers::valkey() {
        Err(why) if optional => {
            println!("skipped: comparison with Valkey: {why}");
            return Ok(());
        }
        bin => bin?,
    };
    let mut command = Command::new(conformance);
    command.args(&args);
    if with_redis {
        match peers::redis_server() {
            Ok(redis) => _ = command.arg("--redis-bin").arg(redis),
            Err(why) => println!("skipped: values to and from Redis: {why}"),
        }
    }
    if args.iter().any(|arg| arg == "--all") {
        let mut others = peers::older();
        others.insert(0, peers::redis_server());
        for other in others {
            match other {
                Ok(other) => _ = command.arg("--with").arg(other),
                Err(why) => println!("skipped: primaries and replicas of another version: {why}"),
            }
        }
    }
    let server = build("isotherm", "isotherm-server")?;
    if is_suite {
        // In addition to the server: they stand in for Valkey's.
        build("isotherm-cli", "isotherm-cli")?;
        build("isotherm-cli", "isotherm-benchmark")?;
        build("isotherm-check", "isotherm-check-rdb")?;
        build("isotherm-check", "isotherm-check-aof")?;
        match peers::source() {
            Err(why) if optional => {
                println!("skipped: Valkey's own tests: {why}");
                return Ok(());
            }
            source => command.env("ISOTHERM_PEER_SOURCE", source?),
        };
    }
    command.current_dir(place::root()).env("ISOTHERM_SERVER", server).env("ISOTHERM_PEER_BIN", bin);
    run::loud(&mut command)
}

/// Common clients against our server. Those that cannot be installed on this machine are reported skips.
/// `scripts`: libraries whose work scripts do, compared with Valkey; `jobs`: the costs of those of a queue;
/// `cluster`: clusters whose slots move.
pub fn clients(args: &[String]) -> Fallible {
    if args.first().is_some_and(|first| ["scripts", "jobs", "cluster"].contains(&first.as_str())) {
        return script_clients(args);
    }
    let conformance = build("isotherm-conformance", "isotherm-conformance")?;
    let server = build("isotherm", "isotherm-server")?;
    let mut command = Command::new(conformance);
    command.arg("clients").args(args).current_dir(place::root());
    command.env("ISOTHERM_SERVER", server).env("ISOTHERM_CLIENTS", place::target().join("clients"));
    command.env("ISOTHERM_PEER_BIN", place::peers().join("bin"));
    // Programs that are not there then are skipped by name; this says why.
    for why in [peers::valkey().err(), peers::redis_cli().err()].into_iter().flatten() {
        println!("{why}");
    }
    run::loud(&mut command)
}

fn script_clients(args: &[String]) -> Fallible {
    let bin = match peers::valkey() {
        Ok(bin) => bin,
        Err(why) => {
            println!("skipped: {} beside Valkey: {why}", args[0]);
            return Ok(());
        }
    };
    let conformance = build("isotherm-conformance", "isotherm-conformance")?;
    let server = build("isotherm", "isotherm-server")?;
    let mut command = Command::new(conformance);
    command.args(args).current_dir(place::root()).env("ISOTHERM_SERVER", server);
    command.env("ISOTHERM_CLIENTS", place::target().join("clients")).env("ISOTHERM_PEER_BIN", bin);
    run::loud(&mut command)
}

/// Builds one program and says where it is. `ISOTHERM_PROFILE=fast` builds in a fraction of a release's time.
fn build(package: &str, program: &str) -> Fallible<PathBuf> {
    build_with(package, program, &std::env::var("ISOTHERM_PROFILE").unwrap_or_else(|_| "release".to_string()))
}

fn build_with(package: &str, program: &str, profile: &str) -> Fallible<PathBuf> {
    needs::check()?;
    if profile == testing::PROFILE {
        return testing::program(program);
    }
    run::loud(run::cargo().args([
        "build",
        "--profile",
        profile,
        "--locked",
        "--package",
        package,
        "--bin",
        program,
    ]))?;
    Ok(place::target().join(profile).join(program))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_type_next_names_the_port() {
        let args = ["--io-threads", "2", "--port", "7000"].map(str::to_string);
        let text = next_steps(Path::new("isotherm-server"), &args, "quick");
        assert!(text.contains("valkey-cli -p 7000 GET") && text.contains("--release"));
        let text = next_steps(Path::new("isotherm-server"), &[], "release");
        assert!(text.contains("valkey-cli GET") && !text.contains("--release"));
    }
}
