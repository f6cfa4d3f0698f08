//! `isotherm-cli`: commands from a shell, a conversation, and the modes that look at a server from outside.

use std::rc::Rc;

use isotherm_cli::conversation::talk;
use isotherm_cli::docs::Docs;
use isotherm_cli::help::help;
use isotherm_cli::hint::{hint_for, run_suite};
use isotherm_cli::options::{Ending, FromStdin, Mode, Options, unquote};
use isotherm_cli::session::{Ran, Session};
use isotherm_cli::terminal::{ask_password, out_is_terminal, put, read_stdin};
use isotherm_cli::usage::USAGE;
use isotherm_cli::{Fallible, VERSION, cluster, modes, version_line};

fn main() {
    let mut words = std::env::args_os();
    let program = words.next().unwrap_or_default();
    let mut options = match Options::parse(words, out_is_terminal()) {
        Ok(options) => options,
        Err(Ending::Usage) => return put(format!("isotherm-cli {VERSION}\n\n{USAGE}")),
        Err(Ending::Version) => return put(version_line(&program)),
        Err(Ending::Wrong(why)) => {
            eprintln!("{why}");
            std::process::exit(1);
        }
    };
    let outcome = password(&mut options).and_then(|()| run(options));
    let code = outcome.unwrap_or_else(|why| {
        if !why.is_empty() {
            eprintln!("{why}");
        }
        1
    });
    std::process::exit(code);
}

fn password(options: &mut Options) -> Fallible {
    if options.ask_password {
        options.login.password = Some(ask_password("Please input password: ")?);
    }
    Ok(())
}

fn run(options: Options) -> Fallible<i32> {
    let mode = options.mode.clone();
    let mut session = Session::new(options);
    match mode {
        Mode::Commands if session.options.command.is_empty() => talk(&mut session),
        Mode::Commands => one_shot(&mut session),
        Mode::Pipe => modes::pipe::run(&mut session),
        Mode::Rdb { path, part } => modes::transfer::save(&mut session, &path, part),
        Mode::Replica => modes::transfer::follow(&mut session),
        Mode::Stat => modes::stat::run(&mut session),
        Mode::Latency { history } => modes::latency::run(&mut session, history),
        Mode::LatencySpectrum => modes::spectrum::run(&mut session),
        Mode::IntrinsicLatency { seconds } => modes::intrinsic::run(seconds),
        Mode::BigKeys => modes::big_keys::run(&mut session, None),
        Mode::MemoryKeys { samples } => modes::big_keys::run(&mut session, Some(samples)),
        Mode::HotKeys { count } => modes::hot_keys::run(&mut session, count),
        Mode::Scan => modes::scan::list(&mut session),
        Mode::LruTest { keys } => modes::lru_test::run(&mut session, keys),
        Mode::Cluster => {
            session.options.manager.args =
                with_stdin(&session.options, session.options.manager.args.clone())?;
            cluster::run(&session.options)
        }
        Mode::Eval { file } => {
            if let Some(debug) = session.options.debug {
                return modes::debug::run(&mut session, &file, debug);
            }
            let command = modes::eval::command(&file, &session.options.command)?;
            session.connection()?;
            finish(&mut session, &command)
        }
        Mode::HintOf(input) => {
            let hint = hint_for(&Docs::fetch(&session.options), &input);
            put(format!("{}\n", hint.as_deref().unwrap_or("(null)")));
            Ok(0)
        }
        Mode::HintSuite(path) => {
            let suite = std::fs::read_to_string(&path)
                .map_err(|why| format!("Can't open file '{}': {why}", path.display()))?;
            let docs = Rc::new(Docs::fetch(&session.options));
            let (passed, failed) = run_suite(&docs, &suite, session.options.verbose)?;
            let verdict = if failed == 0 { "SUCCESS" } else { "FAILURE" };
            put(format!("{verdict}: {passed}/{} passed\n", passed + failed));
            Ok(i32::try_from(failed).unwrap_or(1))
        }
    }
}

fn one_shot(session: &mut Session) -> Fallible<i32> {
    let mut command = session.options.command.clone();
    if command[0].eq_ignore_ascii_case(b"help") || command[0] == b"?" {
        put(help(&Docs::fetch(&session.options), &command[1..]));
        return Ok(0);
    }
    if session.options.quoted_input {
        let Some(unquoted) = command.iter().map(|word| unquote(word)).collect() else {
            put("Invalid quoted string\n");
            return Ok(1);
        };
        command = unquoted;
    }
    let command = with_stdin(&session.options, command)?;
    session.connect(true);
    finish(session, &command)
}

/// The words, one of them from standard input if `-x` or `-X` asks for that.
fn with_stdin(options: &Options, mut words: Vec<Vec<u8>>) -> Fallible<Vec<Vec<u8>>> {
    match &options.stdin {
        FromStdin::No => {}
        FromStdin::LastArgument => words.push(read_stdin()?),
        FromStdin::Tag(tag) => {
            let Some(word) = words.iter_mut().find(|word| *word == tag) else {
                return Err("Using -X option but stdin tag not match.".to_string());
            };
            *word = read_stdin()?;
        }
    }
    Ok(words)
}

/// Runs the command, and then shows messages if it subscribed to some.
fn finish(session: &mut Session, command: &[Vec<u8>]) -> Fallible<i32> {
    let code = match session.run(command, session.options.repeat) {
        Ran::Done => 0,
        Ran::Failed => 1,
        Ran::End(code) => return Ok(code),
    };
    while session.subscribed {
        if let Ran::End(code) = session.show_message() {
            return Ok(code);
        }
    }
    Ok(code)
}
