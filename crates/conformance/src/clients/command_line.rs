//! The command lines: what is typed into valkey-cli and redis-cli, and what must come out; and
//! valkey-benchmark, whose work is counted by the server.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::{Clock, Places, Verdict, last_lines};
use crate::Fallible;
use crate::bounded;
use crate::client::{Client, push_request};
use crate::process::Server;
use isotherm_resp::reply_parse::Value;

/// Time limit for one call of a command line.
const CALL_TIME: Duration = Duration::from_secs(20);

/// Arguments, standard input, and expected standard output of a call.
type Call = (&'static [&'static str], &'static str, &'static str);

const WRONG_GET: &str = "ERR wrong number of arguments for 'get' command\n\n";

const CALLS: [Call; 20] = [
    (&["PING"], "", "PONG\n"),
    (&["ECHO", "two words"], "", "two words\n"),
    (&["-2", "CONFIG", "GET", "maxmemory-policy"], "", "maxmemory-policy\nnoeviction\n"),
    (&["-3", "CONFIG", "GET", "maxmemory-policy"], "", "maxmemory-policy noeviction\n"),
    (&["-3", "--json", "CONFIG", "GET", "maxmemory-policy"], "", "{\"maxmemory-policy\":\"noeviction\"}\n"),
    (&[], "SET a 1\nINCR a\nGET a\n", "OK\n2\n2\n"),
    (&[], "MULTI\nSET t 1\nINCR t\nEXEC\n", "OK\nQUEUED\nQUEUED\nOK\n2\n"),
    (&[], "WATCH t\nMULTI\nGET t\nDISCARD\nGET t\n", "OK\nOK\nQUEUED\nOK\n2\n"),
    (
        &[],
        "MULTI\nNOSUCH\nEXEC\n",
        "OK\nERR unknown command 'NOSUCH', with args beginning with: \n\n\
                                    EXECABORT Transaction discarded because of previous errors.\n\n",
    ),
    (&["GET"], "", WRONG_GET),
    (&["INCR", "word"], "", "ERR value is not an integer or out of range\n\n"),
    (&["-x", "SET", "input"], "line\r\nline\n", "OK\n"),
    (&["GET", "input"], "", "line\r\nline\n\n"),
    (&["-n", "3", "SET", "elsewhere", "x"], "", "OK\n"),
    (&["-n", "3", "DBSIZE"], "", "1\n"),
    (&["EXISTS", "elsewhere"], "", "0\n"),
    (&["-r", "3", "INCR", "counter"], "", "1\n2\n3\n"),
    (&["--csv", "MGET", "a", "absent", "t"], "", "\"2\",NULL,\"2\"\n"),
    (&["--no-raw", "MGET", "a", "absent"], "", "1) \"2\"\n2) (nil)\n"),
    (&["--scan", "--pattern", "el*"], "", ""),
];

/// valkey-cli or redis-cli.
pub fn cli(name: &str, places: &Places, clock: Clock) -> Verdict {
    with_program(name, places, |program, server| {
        let call = Caller { program, server, clock };
        call.expect(&["SET", "word", "text"], b"", "OK\n")?;
        for (args, input, output) in CALLS {
            call.expect(args, input.as_bytes(), output)?;
        }
        call.exit_code_of_errors()?;
        call.mass_insertion()?;
        call.key_statistics()?;
        call.password()?;
        Ok(CALLS.len() + 5)
    })
}

struct Caller<'a> {
    program: &'a Path,
    server: &'a Server,
    clock: Clock,
}

impl Caller<'_> {
    fn call(&self, args: &[&str], input: &[u8]) -> Fallible<bounded::Ended> {
        let mut command = Command::new(self.program);
        command.args(["-p", &self.server.port.to_string()]).args(args);
        let ended = bounded::run(&mut command, input, self.clock.at_most(CALL_TIME))?;
        match ended.status {
            Some(_) => Ok(ended),
            None => Err(format!("{args:?}: {}\n{}", ended.how(), last_lines(&ended))),
        }
    }

    fn expect(&self, args: &[&str], input: &[u8], output: &str) -> Fallible {
        let ended = self.call(args, input)?;
        if ended.output == output {
            return Ok(());
        }
        Err(format!("{args:?}\nsaid     {:?}\nexpected {output:?}\n{}", ended.output, ended.errors))
    }

    fn expect_within(&self, args: &[&str], input: &[u8], parts: &[&str]) -> Fallible {
        let ended = self.call(args, input)?;
        let said = format!("{}{}", ended.output, ended.errors);
        match parts.iter().find(|part| !said.contains(**part)) {
            None => Ok(()),
            Some(part) => Err(format!("{args:?}\ndid not say {part:?} but\n{said}")),
        }
    }

    fn exit_code_of_errors(&self) -> Fallible {
        let code = self.call(&["-e", "GET"], b"")?.status.and_then(|status| status.code());
        if code == Some(1) { Ok(()) } else { Err(format!("-e GET ended with {code:?}, not with 1")) }
    }

    fn mass_insertion(&self) -> Fallible {
        let mut requests = Vec::new();
        for number in 0..5000 {
            push_request(&mut requests, &["SET", &format!("pipe:{number}"), "value"]);
        }
        self.expect_within(&["--pipe"], &requests, &["errors: 0, replies: 5000"])?;
        let found = self.call(&["--scan", "--pattern", "pipe:*"], b"")?;
        let mut names: Vec<&str> = found.output.lines().collect();
        names.sort_unstable();
        names.dedup();
        if names.len() == 5000 { Ok(()) } else { Err(format!("--scan found {} of 5000", names.len())) }
    }

    fn key_statistics(&self) -> Fallible {
        self.expect_within(
            &["--bigkeys"],
            b"",
            &["Sampled 5005 keys in the keyspace!", "Biggest string found"],
        )?;
        self.expect_within(
            &["--memkeys"],
            b"",
            &["Sampled 5005 keys in the keyspace!", "Biggest string found"],
        )
    }

    fn password(&self) -> Fallible {
        self.expect(&["CONFIG", "SET", "requirepass", "sesame"], b"", "OK\n")?;
        self.expect(&["PING"], b"", "NOAUTH Authentication required.\n\n")?;
        self.expect(&["-a", "sesame", "--no-auth-warning", "PING"], b"", "PONG\n")?;
        self.expect(
            &["-3", "--user", "default", "--pass", "sesame", "--no-auth-warning", "PING"],
            b"",
            "PONG\n",
        )?;
        let uri = format!("redis://default:sesame@127.0.0.1:{}/2", self.server.port);
        self.expect(&["-u", &uri, "--no-auth-warning", "DBSIZE"], b"", "0\n")
    }
}

/// A load of valkey-benchmark, and how often the server must have run each command afterwards. PING comes
/// twice: as an array and inline.
type Load = (&'static [&'static str], &'static [(&'static str, u64)]);

const LOADS: [Load; 4] = [
    (
        &["-t", "ping,set,get,incr,mset", "-n", "2000", "-r", "1000"],
        &[("ping", 4000), ("set", 2000), ("get", 2000), ("incr", 2000), ("mset", 2000)],
    ),
    (
        &["-t", "set,get", "-n", "20000", "-P", "32", "-c", "20", "--threads", "2"],
        &[("set", 20_000), ("get", 20_000)],
    ),
    (&["-t", "set", "-n", "2000", "-3", "-d", "20000"], &[("set", 2000)]),
    (
        &["-n", "2000", "-P", "8", "-r", "100", "SETRANGE", "range:__rand_int__", "5", "data"],
        &[("setrange", 2000)],
    ),
];

pub fn benchmark(places: &Places, clock: Clock) -> Verdict {
    with_program("valkey-benchmark", places, |program, server| {
        for (load, counts) in LOADS {
            ask(server, &["CONFIG", "RESETSTAT"])?;
            let mut command = Command::new(program);
            command.args(["-p", &server.port.to_string(), "-q"]).args(load);
            let ended = bounded::run(&mut command, b"", clock.at_most(CALL_TIME))?;
            let said = format!("{}{}", ended.output, ended.errors);
            if !ended.well() || said.to_lowercase().contains("error") {
                return Err(format!("{load:?}: {}\n{}", ended.how(), last_lines(&ended)));
            }
            let info = ask(server, &["INFO", "commandstats"])?;
            for (name, count) in counts {
                let line = format!("cmdstat_{name}:calls={count},");
                if !info.contains(&line) {
                    return Err(format!("{load:?}: no {line} in\n{info}"));
                }
            }
        }
        Ok(LOADS.len())
    })
}

fn ask(server: &Server, args: &[&str]) -> Fallible<String> {
    let reply = Client::connect(server.port).and_then(|mut client| client.call(args));
    match reply.map_err(|why| format!("{args:?}: {why}"))? {
        Value::Bulk(text) | Value::Simple(text) => Ok(String::from_utf8_lossy(&text).into_owned()),
        other => Err(format!("{args:?}: {other}")),
    }
}

/// Finds the program, starts a server, and turns what `check` says into a verdict.
fn with_program(
    name: &str,
    places: &Places,
    check: impl FnOnce(&Path, &Server) -> Fallible<usize>,
) -> Verdict {
    let Some(program) = places.bin.as_ref().map(|bin| bin.join(name)).filter(|program| program.is_file())
    else {
        return Verdict::Skipped("it is not installed".to_string());
    };
    match places.start().and_then(|server| check(&program, &server)) {
        Ok(steps) => Verdict::Passed { steps },
        Err(why) => Verdict::Failed(why),
    }
}
