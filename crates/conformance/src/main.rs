//! The command line of the comparison; `--help` says what it can do.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use isotherm_conformance::Fallible;
use isotherm_conformance::clients;
use isotherm_conformance::cluster;
use isotherm_conformance::declared;
use isotherm_conformance::differential::{Options, Target, attach, run};
use isotherm_conformance::effects::{GOLDEN, differences, golden, observe, parse, print};
use isotherm_conformance::faults::FAULTS;
use isotherm_conformance::follow;
use isotherm_conformance::interleave;
use isotherm_conformance::scripts;
use isotherm_conformance::suite;
use isotherm_conformance::transfer::{self, Load, Peer};

const HELP: &str = "\
isotherm-conformance: compares Isotherm with Valkey

  differential [options]      the same random commands to both, every reply compared
    --ours PORT | --ours-bin PATH        default: the program named by ISOTHERM_SERVER
    --valkey PORT | --valkey-bin PATH    default: valkey-server in the folder named by ISOTHERM_PEER_BIN
    --ours-arg ARG                       one more argument for our server; may be repeated
    --commands N                         how many to compare (default 20000)
    --seed S  --session I                what to compare, again (default: seed 1, all sessions)
    --group NAME                         one of src/grammar.txt; may be repeated (default: all)
    --fault NAME                         a bug on purpose: keepttl-ignored, range-ends-early, conditions-ignored,
                                         discard-runs
    --shown N                            kinds of differences that are explained (default 20)
    --swap-chaos yes                     values leave our server's memory whenever they can

  interleave [options]        five connections in a fixed order: what arrives at each, asked for or not, and their states
    --ours PORT | --ours-bin PATH, --valkey PORT | --valkey-bin PATH     as above; `enable-debug-command yes`
    --ours-arg ARG                       as above; without one: --io-threads 3
    --steps N                            how many to compare (default 20000)
    --seed S  --session I  --shown N     as above

  effects [options]           what Valkey writes to its replication stream, compared with tests/golden/effects.txt
    --valkey PORT | --valkey-bin PATH    a running one needs `enable-debug-command yes`
    --bless FILE                         writes what Valkey did into that file instead

  declared [options]          what both say of their commands: COMMAND LIST, INFO and DOCS, and the keys of generated requests
    --ours PORT | --ours-bin PATH, --valkey PORT | --valkey-bin PATH     as above
    --requests N  --seed S               how many for each command, and which (default 100, 1)

  replication-stream [options] < commands
                              runs one command a line and prints what Valkey writes for each
    --valkey PORT | --valkey-bin PATH

  transfer [options]          random values of every type, dumped and restored both ways, digests compared
    --ours PORT | --ours-bin PATH, --valkey PORT | --valkey-bin PATH     as above; `enable-debug-command yes`
    --redis PORT | --redis-bin PATH      then the same with Redis
    --values N  --seed S                 how many, and which (default 2000, 1)
    --kind NAME                          string, list, set, hash, zset, stream; may be repeated

  follow [options]            a primary and a replica of any make: random commands, cut links, full syncs; digests and offsets
    --primary PATH  --replica PATH  --sub-replica PATH   default: ours; `valkey` is the one in ISOTHERM_PEER_BIN
    --all --with PATH ..                 chains of ours and Valkey, and each PATH as primary and as replica of ours
    --commands N  --seed S               how many, and which (default 20000, 1)

  clients [options] [NAME ..] valkey-cli, redis-cli, valkey-benchmark, redis-py, go-redis, ioredis, Jedis at work
    --ours-bin PATH                      default: the program named by ISOTHERM_SERVER
    --bin FOLDER                         valkey-cli and so on; default: ISOTHERM_PEER_BIN
    --folder FOLDER                      where libraries are installed; default: ISOTHERM_CLIENTS
    --seconds N                          the time for everything (default 170)

  scripts [options] [NAME ..] suites of asynq, redislock, redis_rate, redsync, rq and huey, and drivers of ours on bullmq, bull,
                              bee-queue, rate-limiter-flexible, redis-semaphore and redlock: as on Valkey?
    --quick yes                          those that take seconds
    --ours-bin PATH, --valkey-bin PATH, --folder FOLDER     as above

  cluster [options] [reloads] slots move for many loops while redis-py, go-redis and Jedis write: is a key lost, doubled, stale?
                              reloads: how often each loads the topology while 100 slots move
    --loops N  --slots N  --seconds N    how often (default 30), how many at once (40), the time for each cluster (900)
    --quick yes                          3 loops, Isotherm nodes only, 45 s
    --valkey yes                         only Valkey's nodes: what the libraries do by themselves
    --pushes yes                         Isotherm nodes with cluster-maint-notifications
    --pace N                             of reloads: operations a second of a library (default 200)
    --ours-bin PATH, --bin FOLDER, --folder FOLDER          as above

  jobs [options]              the CPU time that jobs of BullMQ cost each server, A B A B
    --jobs N  --rounds N                 how many (default 10000, 3)
    --ours-bin PATH, --valkey-bin PATH, --folder FOLDER     as above

  suite [options] NAME        tests of Valkey's own suite against our programs; NAME: disk, replication,
                              sentinel (sentinels are Valkey's, the servers ours), cluster (of Valkey: its tools)
    --valkey yes                         against Valkey's own programs
    --only PART                          only files whose name has PART
    --ours FOLDER                        our programs; default: the folder of ISOTHERM_SERVER
    --bin FOLDER                         tclsh, and Valkey's programs; default: ISOTHERM_PEER_BIN
    --source FOLDER                      Valkey's source; default: ISOTHERM_PEER_SOURCE

The exit code is 1 if anything differed. Everything in the servers is deleted.";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match args.first().map(String::as_str) {
        Some("differential") => differential(&args[1..]),
        Some("interleave") => compare_interleaved(&args[1..]),
        Some("effects") => effects(&args[1..]),
        Some("declared") => compare_declarations(&args[1..]),
        Some("replication-stream") => replication_stream(&args[1..]),
        Some("transfer") => transfer(&args[1..]),
        Some("follow") => follow(&args[1..]),
        Some("clients") => try_clients(&args[1..]),
        Some("scripts") => run_scripts(&args[1..]),
        Some("cluster") => run_cluster(&args[1..]),
        Some("jobs") => run_jobs(&args[1..]),
        Some("with-server") => scripts::with_server(&args[1..]),
        Some("suite") => run_suite(&args[1..]),
        Some("--help" | "help") | None => {
            println!("{HELP}");
            Ok(true)
        }
        Some(other) => Err(format!("unknown: {other}\n{HELP}")),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("isotherm-conformance: {why}");
            ExitCode::from(2)
        }
    }
}

fn differential(args: &[String]) -> Fallible<bool> {
    let mut options = Options {
        ours: Target::Port(0),
        theirs: Target::Port(0),
        commands: 20_000,
        seed: 1,
        session: None,
        groups: Vec::new(),
        fault: None,
        shown_max: 20,
        swap_chaos: false,
    };
    let (mut servers, own) = Servers::named(args)?;
    for (name, value) in own {
        let number = || number(&name, &value);
        match name.as_str() {
            "--swap-chaos" => {
                options.swap_chaos = true;
                servers.ours_args.extend(SWAP_CHAOS.map(String::from));
            }
            "--commands" => options.commands = number()?,
            "--seed" => options.seed = number()?,
            "--session" => options.session = Some(number()?),
            "--shown" => options.shown_max = number()? as usize,
            "--group" => options.groups.push(value),
            "--fault" => {
                let known = FAULTS.iter().find(|(name, _)| *name == value);
                options.fault = Some(known.ok_or_else(|| format!("no such fault: {value}"))?.1);
            }
            other => return Err(format!("unknown option: {other}\n{HELP}")),
        }
    }
    let (ours, theirs) = servers.targets(&[])?;
    options.ours = debuggable(ours);
    options.theirs = thorough(debuggable(theirs));
    let report = run(&options)?;
    report.print();
    if options.swap_chaos && report.swapped == 0 {
        return Err("no value left memory".to_string());
    }
    Ok(report.differences.is_empty())
}

/// More memory than is needed: what leaves does so because it may.
const SWAP_CHAOS: [&str; 8] =
    ["--swap-mode", "yes", "--maxmemory", "4gb", "--swap-min-value", "16", "--swap-max-disk", "1gb"];

fn compare_interleaved(args: &[String]) -> Fallible<bool> {
    let (mut steps, mut seed, mut session, mut shown_max) = (20_000, 1, None, 20);
    let (servers, own) = Servers::named(args)?;
    for (name, value) in own {
        let number = || number(&name, &value);
        match name.as_str() {
            "--steps" => steps = number()?,
            "--seed" => seed = number()?,
            "--session" => session = Some(number()?),
            "--shown" => shown_max = number()? as usize,
            other => return Err(format!("unknown option: {other}\n{HELP}")),
        }
    }
    let (ours, theirs) = servers.targets(&["--io-threads", "3"])?;
    let (ours, theirs) = (debuggable(ours), debuggable(theirs));
    let patience = interleave::PATIENCE;
    let options = interleave::Options { ours, theirs, steps, seed, session, shown_max, patience };
    let report = interleave::run(&options)?;
    report.print();
    Ok(report.differences.is_empty())
}

fn compare_declarations(args: &[String]) -> Fallible<bool> {
    let (mut requests, mut seed) = (100, 1);
    let (servers, own) = Servers::named(args)?;
    for (name, value) in own {
        let number = || number(&name, &value);
        match name.as_str() {
            "--requests" => requests = number()?,
            "--seed" => seed = number()?,
            other => return Err(format!("unknown option: {other}\n{HELP}")),
        }
    }
    let (ours, theirs) = servers.targets(&[])?;
    let (ours, theirs) = (attach(&ours)?, attach(&theirs)?);
    let report = declared::run(ours.port, theirs.port, requests, seed)?;
    const SHOWN_MAX: usize = 20;
    report.differences.iter().take(SHOWN_MAX).for_each(|difference| println!("{difference:.1200}"));
    println!("{} answers compared, {} differences", report.compared, report.differences.len());
    Ok(report.differences.is_empty())
}

fn effects(args: &[String]) -> Fallible<bool> {
    let (target, mut rest) = valkey_option(args)?;
    let bless = match rest.as_mut_slice() {
        [] => None,
        [option, file] if option == "--bless" => Some(std::mem::take(file)),
        _ => return Err(format!("unknown options: {}\n{HELP}", rest.join(" "))),
    };
    let expected = golden()?;
    let server = attach(&debuggable(target))?;
    let observed = observe(server.port, &expected)?;
    if let Some(file) = bless {
        let comments: Vec<&str> = GOLDEN.lines().take_while(|line| line.starts_with('#')).collect();
        let text = format!("{}\n{}", comments.join("\n"), print(&observed));
        std::fs::write(&file, text).map_err(|why| format!("{file}: {why}"))?;
        return Ok(true);
    }
    let differences = differences(&expected, &observed);
    differences.iter().for_each(|difference| println!("{difference}"));
    println!("{} cases, {} differences", expected.len(), differences.len());
    Ok(differences.is_empty())
}

fn replication_stream(args: &[String]) -> Fallible<bool> {
    let (target, rest) = valkey_option(args)?;
    if !rest.is_empty() {
        return Err(format!("unknown options: {}\n{HELP}", rest.join(" ")));
    }
    let server = attach(&debuggable(target))?;
    let commands = std::io::read_to_string(std::io::stdin()).map_err(|why| why.to_string())?;
    let lines: Vec<String> = commands.lines().map(|line| format!("> {line}")).collect();
    let case = parse(&format!("== commands\n{}\n", lines.join("\n")))?;
    print!("{}", print(&observe(server.port, &case)?));
    Ok(true)
}

fn transfer(args: &[String]) -> Fallible<bool> {
    let (mut ours, mut theirs, mut redis) = (None, None, None);
    let mut load = Load { values: 2000, seed: 1, kinds: Vec::new() };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let value = args.next().ok_or_else(|| format!("{arg} needs a value"))?;
        let number = || value.parse::<u64>().map_err(|_| format!("{arg}: {value} is no number"));
        let port =
            || value.parse::<u16>().map_err(|_| format!("{arg}: {value} is no port")).map(Target::Port);
        let binary = || Target::Binary(PathBuf::from(value), Vec::new());
        match arg.as_str() {
            "--ours" => ours = Some(port()?),
            "--valkey" => theirs = Some(port()?),
            "--redis" => redis = Some(port()?),
            "--ours-bin" => ours = Some(binary()),
            "--valkey-bin" => theirs = Some(binary()),
            "--redis-bin" => redis = Some(binary()),
            "--values" => load.values = number()?,
            "--seed" => load.seed = number()?,
            "--kind" => load.kinds.push(value.clone()),
            other => return Err(format!("unknown option: {other}\n{HELP}")),
        }
    }
    let ours = ours.or_else(|| from_env("ISOTHERM_SERVER", ""));
    let ours = attach(&debuggable(ours.ok_or("where is Isotherm? --ours PORT or --ours-bin PATH")?))?;
    let mut peers = vec![(Peer::Valkey, valkey(theirs)?)];
    peers.extend(redis.map(|redis| (Peer::Redis, redis)));
    let mut all_same = true;
    for (peer, target) in peers {
        let outcome = transfer::run(&ours, &debuggable(target), peer, &load)?;
        const SHOWN_MAX: usize = 20;
        outcome.differences.iter().take(SHOWN_MAX).for_each(|difference| println!("{difference:.600}"));
        println!(
            "{}: {} values sent, {} of them came back, {} with the very bytes, {} differences",
            peer.name(),
            outcome.values,
            outcome.values - outcome.one_way,
            outcome.same_bytes,
            outcome.differences.len()
        );
        all_same &= outcome.differences.is_empty();
    }
    Ok(all_same)
}

fn follow(args: &[String]) -> Fallible<bool> {
    let program = |name: &str| match (name, from_env("ISOTHERM_SERVER", ""), valkey(None)) {
        ("ours", Some(Target::Binary(path, _)), _) | ("valkey", _, Ok(Target::Binary(path, _))) => Ok(path),
        ("ours" | "valkey", ..) => Err(format!("where is {name}? Give its path")),
        (path, ..) => Ok(PathBuf::from(path)),
    };
    let (mut chain, mut others, mut is_all) = (vec!["ours", "ours"], Vec::new(), false);
    let (mut commands, mut seed) = (20_000, 1);
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        if arg == "--all" {
            is_all = true;
            continue;
        }
        let value = args.next().ok_or_else(|| format!("{arg} needs a value"))?;
        let number = || value.parse::<u64>().map_err(|_| format!("{arg}: {value} is no number"));
        match arg.as_str() {
            "--primary" => chain[0] = value,
            "--replica" => chain[1] = value,
            "--sub-replica" => chain.push(value),
            "--with" => others.push(value.as_str()),
            "--commands" => commands = number()?,
            "--seed" => seed = number()?,
            other => return Err(format!("unknown option: {other}\n{HELP}")),
        }
    }
    let mut chains = vec![chain];
    if is_all {
        chains = [&["ours", "ours", "ours"][..], &["valkey", "ours", "valkey"], &["ours", "valkey", "ours"]]
            .map(Vec::from)
            .into();
        chains.extend(others.iter().flat_map(|other| [vec![*other, "ours"], vec!["ours", *other]]));
    }
    let mut all_same = true;
    for chain in chains {
        let chain = chain.into_iter().map(program).collect::<Fallible<_>>()?;
        let outcome = follow::run(&follow::Options { chain, commands, seed })?;
        println!("{outcome}");
        all_same &= outcome.difference.is_none();
    }
    Ok(all_same)
}

fn try_clients(args: &[String]) -> Fallible<bool> {
    let from_env = |name| std::env::var_os(name).map(PathBuf::from);
    let mut server = from_env("ISOTHERM_SERVER");
    let mut bin = from_env("ISOTHERM_PEER_BIN");
    let mut folder = from_env("ISOTHERM_CLIENTS");
    let (mut seconds, mut names) = (170, Vec::new());
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--ours-bin" => server = Some(value()?.into()),
            "--bin" => bin = Some(value()?.into()),
            "--folder" => folder = Some(value()?.into()),
            "--seconds" => seconds = value()?.parse().map_err(|_| "--seconds needs a number".to_string())?,
            option if option.starts_with('-') => return Err(format!("unknown option: {option}\n{HELP}")),
            name => names.push(name.to_string()),
        }
    }
    let places = clients::Places {
        server: server.ok_or("where is Isotherm? --ours-bin PATH")?,
        bin,
        folder: folder.ok_or("where may libraries be installed? --folder FOLDER")?,
    };
    clients::run(&places, &names, clients::Clock::total(Duration::from_secs(seconds)))
}

/// An option and its value.
type Pair = (String, String);

/// The places of both servers, taken from the options before the others.
fn script_places(options: &mut Vec<Pair>) -> Fallible<scripts::Places> {
    let from_env = |name| std::env::var_os(name).map(PathBuf::from);
    let mut server = from_env("ISOTHERM_SERVER");
    let mut valkey = from_env("ISOTHERM_PEER_BIN").map(|bin| bin.join("valkey-server"));
    let mut folder = from_env("ISOTHERM_CLIENTS").map(|folder| folder.join("scripts"));
    options.retain(|(name, value)| {
        let place = match name.as_str() {
            "--ours-bin" => &mut server,
            "--valkey-bin" => &mut valkey,
            "--folder" => &mut folder,
            _ => return true,
        };
        *place = Some(value.into());
        false
    });
    Ok(scripts::Places {
        server: server.ok_or("where is Isotherm? --ours-bin PATH")?,
        valkey: valkey.ok_or("where is Valkey? --valkey-bin PATH")?,
        folder: folder.ok_or("where may packages be installed? --folder FOLDER")?,
    })
}

/// Both servers, as options name them.
#[derive(Default)]
struct Servers {
    ours: Option<Target>,
    theirs: Option<Target>,
    ours_args: Vec<String>,
}

impl Servers {
    /// Returns also the options that name no server. A word that belongs to no option is an error.
    fn named(args: &[String]) -> Fallible<(Servers, Vec<Pair>)> {
        let (mut servers, mut own) = (Servers::default(), Vec::new());
        let (options, words) = options(args)?;
        if !words.is_empty() {
            return Err(format!("unknown: {}\n{HELP}", words.join(" ")));
        }
        for (name, value) in options {
            let port = || value.parse().map(Target::Port).map_err(|_| format!("{name}: {value} is no port"));
            let binary = || Target::Binary(PathBuf::from(&value), Vec::new());
            match name.as_str() {
                "--ours" => servers.ours = Some(port()?),
                "--valkey" => servers.theirs = Some(port()?),
                "--ours-bin" => servers.ours = Some(binary()),
                "--valkey-bin" => servers.theirs = Some(binary()),
                "--ours-arg" => servers.ours_args.push(value),
                _ => own.push((name, value)),
            }
        }
        Ok((servers, own))
    }

    /// Returns ours and Valkey. `usual_args`: arguments of ours where no option gives any.
    fn targets(self, usual_args: &[&str]) -> Fallible<(Target, Target)> {
        let mut args = self.ours_args;
        if args.is_empty() {
            args.extend(usual_args.iter().map(|arg| arg.to_string()));
        }
        let ours = match self.ours.or_else(|| from_env("ISOTHERM_SERVER", "")) {
            Some(Target::Binary(path, _)) => Target::Binary(path, args),
            Some(port) => port,
            None => return Err("where is Isotherm? --ours PORT or --ours-bin PATH".into()),
        };
        Ok((ours, valkey(self.theirs)?))
    }
}

fn number(name: &str, value: &str) -> Fallible<u64> {
    value.parse().map_err(|_| format!("{name}: {value} is no number"))
}

/// Options with their values, and the words that belong to none.
fn options(args: &[String]) -> Fallible<(Vec<Pair>, Vec<String>)> {
    let (mut options, mut words) = (Vec::new(), Vec::new());
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.starts_with('-') {
            true => {
                let value = args.next().ok_or_else(|| format!("{arg} needs a value"))?;
                options.push((arg.clone(), value.clone()));
            }
            false => words.push(arg.clone()),
        }
    }
    Ok((options, words))
}

fn run_scripts(args: &[String]) -> Fallible<bool> {
    let (mut options, names) = options(args)?;
    let places = script_places(&mut options)?;
    let mut quick = false;
    for (name, value) in options {
        match name.as_str() {
            "--quick" => quick = value == "yes",
            other => return Err(format!("unknown option: {other}\n{HELP}")),
        }
    }
    scripts::run(&places, &names, quick)
}

fn run_cluster(args: &[String]) -> Fallible<bool> {
    let (options, words) = options(args)?;
    let from_env = |name| std::env::var_os(name).map(PathBuf::from);
    let mut server = from_env("ISOTHERM_SERVER");
    let (mut bin, mut folder) = (from_env("ISOTHERM_PEER_BIN"), from_env("ISOTHERM_CLIENTS"));
    let mut wanted =
        cluster::Options { loops: 30, slots: 40, seconds: 900, clusters: cluster::CLUSTERS, more: &[] };
    let mut pace = 200;
    for (name, value) in options {
        let number = || value.parse::<u64>().map_err(|_| format!("{name}: {value} is no number"));
        match name.as_str() {
            "--ours-bin" => server = Some(PathBuf::from(value)),
            "--bin" => bin = Some(PathBuf::from(value)),
            "--folder" => folder = Some(PathBuf::from(value)),
            "--loops" => wanted.loops = number()? as usize,
            "--slots" => wanted.slots = number()?.max(1) as usize,
            "--seconds" => wanted.seconds = number()?,
            "--pace" => pace = number()?.max(1) as usize,
            "--quick" if value == "yes" => {
                (wanted.loops, wanted.slots, wanted.seconds) = (3, 10, 45);
                wanted.clusters = &cluster::CLUSTERS[..1];
            }
            "--valkey" if value == "yes" => wanted.clusters = cluster::VALKEY,
            "--pushes" if value == "yes" => wanted.more = &["--cluster-maint-notifications", "yes"],
            other => return Err(format!("unknown option: {other}\n{HELP}")),
        }
    }
    let places = cluster::Places {
        server: server.ok_or("where is Isotherm? --ours-bin PATH")?,
        bin: bin.ok_or("where are Valkey's programs? --bin FOLDER")?,
        folder: folder.ok_or("where may libraries be installed? --folder FOLDER")?,
    };
    match words.as_slice() {
        [] => cluster::run(&places, &wanted),
        [word] if word == "reloads" => cluster::reloads(&places, pace),
        words => Err(format!("unknown: {}\n{HELP}", words.join(" "))),
    }
}

fn run_jobs(args: &[String]) -> Fallible<bool> {
    let (mut options, words) = options(args)?;
    let places = script_places(&mut options)?;
    let (mut jobs, mut rounds) = (10_000, 3);
    for (name, value) in options {
        let number = || value.parse::<u64>().map_err(|_| format!("{name}: {value} is no number"));
        match name.as_str() {
            "--jobs" => jobs = number()?,
            "--rounds" => rounds = number()?.max(1),
            other => return Err(format!("unknown option: {other}\n{HELP}")),
        }
    }
    match words.as_slice() {
        [] => scripts::jobs::run(&places, jobs, rounds),
        words => Err(format!("unknown: {}\n{HELP}", words.join(" "))),
    }
}

fn run_suite(args: &[String]) -> Fallible<bool> {
    let from_env = |name| std::env::var_os(name).map(PathBuf::from);
    let mut ours = from_env("ISOTHERM_SERVER").and_then(|server| Some(server.parent()?.to_path_buf()));
    let (mut peers, mut source) = (from_env("ISOTHERM_PEER_BIN"), from_env("ISOTHERM_PEER_SOURCE"));
    let mut options = suite::Options { only: None, is_valkey: false };
    let mut name = None;
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--valkey" => options.is_valkey = value()? == "yes",
            "--only" => options.only = Some(value()?.clone()),
            "--ours" => ours = Some(value()?.into()),
            "--bin" => peers = Some(value()?.into()),
            "--source" => source = Some(value()?.into()),
            option if option.starts_with('-') => return Err(format!("unknown option: {option}\n{HELP}")),
            list => name = Some(list.to_string()),
        }
    }
    let places = suite::Places {
        ours: ours.ok_or("where are our programs? --ours FOLDER")?,
        peers: peers.ok_or("where is tclsh? --bin FOLDER")?,
        source: source.ok_or("where is Valkey's source? --source FOLDER")?,
    };
    let name = name.ok_or_else(|| format!("which list? There are: {}", suite::names()))?;
    suite::run(&name, &places, &options)
}

/// Takes the options that name a Valkey out of `args`.
fn valkey_option(args: &[String]) -> Fallible<(Target, Vec<String>)> {
    match args {
        [option, port, rest @ ..] if option == "--valkey" => {
            let port = port.parse().map_err(|_| format!("--valkey: {port} is no port"))?;
            Ok((Target::Port(port), rest.to_vec()))
        }
        [option, path, rest @ ..] if option == "--valkey-bin" => {
            Ok((Target::Binary(PathBuf::from(path), Vec::new()), rest.to_vec()))
        }
        rest => Ok((valkey(None)?, rest.to_vec())),
    }
}

/// A Valkey that looks at a payload as deeply as we always do.
fn thorough(target: Target) -> Target {
    match target {
        Target::Binary(path, mut args) => {
            args.extend(["--sanitize-dump-payload".to_string(), "yes".to_string()]);
            Target::Binary(path, args)
        }
        port => port,
    }
}

/// DEBUG gives digests, reloads, and switches the active expiry off and on.
fn debuggable(target: Target) -> Target {
    match target {
        Target::Binary(path, mut args) => {
            args.extend(["--enable-debug-command".to_string(), "yes".to_string()]);
            Target::Binary(path, args)
        }
        port => port,
    }
}

fn valkey(named: Option<Target>) -> Fallible<Target> {
    let target = named.or_else(|| from_env("ISOTHERM_PEER_BIN", "valkey-server"));
    target.ok_or_else(|| "where is Valkey? --valkey PORT or --valkey-bin PATH".to_string())
}

fn from_env(variable: &str, program: &str) -> Option<Target> {
    let path = PathBuf::from(std::env::var_os(variable)?);
    Some(Target::Binary(if program.is_empty() { path } else { path.join(program) }, Vec::new()))
}
