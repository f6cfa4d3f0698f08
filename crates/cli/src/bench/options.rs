//! The command line of `isotherm-benchmark`: that of valkey-benchmark, so that commands found elsewhere can
//! be pasted.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::time::Duration;

use crate::address::{Address, Login, parse_uri};
use crate::connection::Dial;
use crate::options::Ending;
use crate::text::leading_i64;
use crate::tls::TlsOptions;

/// Nodes of a cluster that requests are sent to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadFrom {
    Primaries,
    Replicas,
    All,
}

#[derive(Clone, Debug)]
pub struct Options {
    pub address: Address,
    pub login: Login,
    pub db: i64,
    pub dial: Dial,
    pub clients: usize,
    pub requests: u64,
    /// Instead of a number of requests.
    pub duration: Option<Duration>,
    pub warmup: Option<Duration>,
    pub data_bytes: usize,
    pub keepalive: bool,
    pub pipeline: usize,
    /// Fill in random numbers below this.
    pub keyspace: Option<u64>,
    pub sequential: bool,
    pub quiet: bool,
    pub csv: bool,
    pub forever: bool,
    pub idle: bool,
    pub tests: Option<Vec<String>>,
    pub stdin_last: bool,
    pub precision: u32,
    /// 0: one, and no mention of it.
    pub threads: usize,
    pub cluster: bool,
    pub read_from: ReadFrom,
    pub resp3: bool,
    pub tracking: bool,
    /// Requests a second of all connections together; 0: as many as there can be.
    pub rps: u64,
    pub seed: Option<u64>,
    pub functions: usize,
    pub fcall_keys: usize,
    pub command: Vec<Vec<u8>>,
}

const THREADS_MAX: i64 = 500;
const CLIENTS_MAX: i64 = 1 << 20;
const PIPELINE_MAX: i64 = 1 << 20;
const DATA_BYTES_MAX: i64 = 1 << 30;
const PRECISION: u32 = 3;
const PRECISION_MAX: i64 = 4;

impl Default for Options {
    fn default() -> Options {
        Options {
            address: Address::tcp("127.0.0.1", 6379),
            login: Login::default(),
            db: 0,
            dial: Dial::default(),
            clients: 50,
            requests: 100_000,
            duration: None,
            warmup: None,
            data_bytes: 3,
            keepalive: true,
            pipeline: 1,
            keyspace: None,
            sequential: false,
            quiet: false,
            csv: false,
            forever: false,
            idle: false,
            tests: None,
            stdin_last: false,
            precision: PRECISION,
            threads: 0,
            cluster: false,
            read_from: ReadFrom::Primaries,
            resp3: false,
            tracking: false,
            rps: 0,
            seed: None,
            functions: 10,
            fcall_keys: 1,
            command: Vec::new(),
        }
    }
}

impl Options {
    pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Options, Ending> {
        let mut words: Vec<Vec<u8>> = args.into_iter().map(OsString::into_vec).collect();
        let mut reading =
            Reading { options: Options::default(), requests: false, tls: TlsOptions::default() };
        let mut at = 0;
        while at < words.len() {
            let word = String::from_utf8_lossy(&words[at]).into_owned();
            if word == "--" {
                at += 1;
                break;
            }
            if !word.starts_with('-') {
                break;
            }
            at += 1;
            if reading.switch(&word)? {
                continue;
            }
            let missing =
                || Ending::Wrong(format!("Invalid option \"{word}\" or option argument missing\n\n{USAGE}"));
            let value = words.get(at).map(|value| String::from_utf8_lossy(value).into_owned());
            at += 1;
            if !reading.value(&word, &value.ok_or_else(missing)?)? {
                return Err(missing());
            }
        }
        reading.options.command = words.split_off(at);
        reading.options.dial.tls = reading.tls.finish().map_err(Ending::Wrong)?;
        Ok(reading.options)
    }

    /// True if the test is asked for, or all are.
    pub fn wants(&self, test: &str) -> bool {
        self.tests.as_ref().is_none_or(|tests| tests.iter().any(|name| name == test))
    }
}

struct Reading {
    options: Options,
    /// -n was given.
    requests: bool,
    tls: TlsOptions,
}

impl Reading {
    fn switch(&mut self, word: &str) -> Result<bool, Ending> {
        let options = &mut self.options;
        match word {
            "--help" => return Err(Ending::Usage),
            "-v" | "--version" => return Err(Ending::Version),
            "-x" => options.stdin_last = true,
            "-3" => options.resp3 = true,
            "--sequential" => options.sequential = true,
            "-q" => options.quiet = true,
            "--csv" => options.csv = true,
            "-l" => options.forever = true,
            "-I" => options.idle = true,
            "-e" => eprintln!(
                "WARNING: -e option has no effect. We now immediately exit on error to avoid false results."
            ),
            "--cluster" => options.cluster = true,
            "--enable-tracking" => options.tracking = true,
            _ => return Ok(self.tls.switch(word)),
        }
        Ok(true)
    }

    fn value(&mut self, word: &str, value: &str) -> Result<bool, Ending> {
        let wrong = |why: &str| Err(Ending::Wrong(why.to_string()));
        let options = &mut self.options;
        let number = leading_i64(value);
        let seconds = Duration::from_secs(number.max(0).unsigned_abs());
        match word {
            "-h" => options.address = Address::tcp(value, port_of(&options.address)),
            "-p" => match (u16::try_from(number), &mut options.address) {
                (Ok(new), Address::Tcp { port, .. }) => *port = new,
                (Ok(_), Address::Unix(_)) => {}
                (Err(_), _) => return wrong("Invalid server port."),
            },
            "-s" => options.address = Address::Unix(value.into()),
            "-a" => options.login.password = Some(value.to_string()),
            "--user" => options.login.user = Some(value.to_string()),
            "-u" => apply_uri(options, &mut self.tls, value)?,
            "-c" => options.clients = number.clamp(1, CLIENTS_MAX) as usize,
            "-n" if options.duration.is_some() => return wrong(EXCLUSIVE),
            "-n" => {
                self.requests = true;
                options.requests = number.max(0).unsigned_abs();
            }
            "--duration" if self.requests => return wrong(EXCLUSIVE),
            "--duration" => options.duration = (!seconds.is_zero()).then_some(seconds),
            "--warmup" => options.warmup = (!seconds.is_zero()).then_some(seconds),
            "-d" => options.data_bytes = number.clamp(1, DATA_BYTES_MAX) as usize,
            "--dbnum" => options.db = number,
            "-k" => options.keepalive = number != 0,
            "-P" => options.pipeline = number.clamp(1, PIPELINE_MAX) as usize,
            "-r" => options.keyspace = Some(number.max(0).unsigned_abs()),
            "-t" => options.tests = Some(value.to_ascii_lowercase().split(',').map(str::to_string).collect()),
            "--precision" if number < 0 => options.precision = PRECISION,
            "--precision" => options.precision = number.min(PRECISION_MAX) as u32,
            "--threads" => {
                if number > THREADS_MAX {
                    eprintln!("WARNING: Too many threads, limiting threads to {THREADS_MAX}.");
                }
                options.threads = number.clamp(0, THREADS_MAX) as usize;
            }
            "--rfr" => {
                options.read_from = match value {
                    "no" => ReadFrom::Primaries,
                    "yes" => ReadFrom::Replicas,
                    "all" => ReadFrom::All,
                    _ => return Ok(false),
                }
            }
            "--rps" => options.rps = number.max(0).unsigned_abs(),
            "--seed" => options.seed = Some(number.unsigned_abs()),
            "--num-functions" => options.functions = number.clamp(0, 10_000) as usize,
            "--num-keys-in-fcall" => options.fcall_keys = number.clamp(0, 10_000) as usize,
            _ => return Ok(self.tls.value(word, value)),
        }
        Ok(true)
    }
}

const EXCLUSIVE: &str = "Options -n and --duration are mutually exclusive.";

fn port_of(address: &Address) -> u16 {
    match address {
        Address::Tcp { port, .. } => *port,
        Address::Unix(_) => 6379,
    }
}

fn apply_uri(options: &mut Options, tls: &mut TlsOptions, uri: &str) -> Result<(), Ending> {
    let uri = parse_uri(uri).map_err(Ending::Wrong)?;
    tls.is_on |= uri.is_tls;
    let port = uri.port.unwrap_or_else(|| i64::from(port_of(&options.address)));
    let Ok(port) = u16::try_from(port) else { return Err(Ending::Wrong("Invalid server port.".to_string())) };
    let host = match (uri.host, &options.address) {
        (Some(host), _) => host,
        (None, Address::Tcp { host, .. }) => host.clone(),
        (None, Address::Unix(_)) => "127.0.0.1".to_string(),
    };
    options.address = Address::Tcp { host, port };
    options.login.user = uri.user.or(options.login.user.take());
    options.login.password = uri.password.or(options.login.password.take());
    options.db = uri.db.unwrap_or(options.db);
    Ok(())
}

pub const USAGE: &str = "\
Usage: isotherm-benchmark [options] [--] [command [argument ...]]

Sends commands over many connections and reports throughput and latency. Without a command it runs a set of tests (-t selects).
Several commands are separated by ';', and a number in front of one repeats it:
    isotherm-benchmark -r 100000 -- multi ';' set key:__rand_int__ __data__ ';' 3 incr counter ';' exec

Placeholders in arguments
  __rand_int__         a random number below -r, in 12 digits
  __rand_1st__ ... __rand_9th__
                       the same, with one number for all occurrences in a sequence
  __data__             as many bytes as -d says
  {tag}                the tag of a slot of the node; needed in keys with --cluster

Connection
  -h <host>, -p <port>, -s <socket>, -u <uri>, -a <password>, --user <name>, --dbnum <db>, -3
  --tls, --cacert <file>, --cacertdir <folder>, --cert <file>, --key <file>, --sni <name>, --insecure, --tls-ciphers <list>,
  --tls-ciphersuites <list>

Load
  -c <clients>         connections (50)
  -n <requests>        number of requests (100000), or
  --duration <s>       run for this time
  --warmup <s>         run for this time before measuring
  -t <tests>           only these tests, separated by commas: ping,set,get,...
  -d <bytes>           size of values (3)
  -P <requests>        requests sent before the first reply is read (1)
  -r <numbers>         range of random numbers; without it they are all the same
  --sequential         sequential numbers instead of random ones
  -k <0|1>             0: a new connection for each batch
  --rps <requests>     at most this many requests per second
  --threads <n>        number of threads
  --cluster            use the nodes of a cluster
  --rfr <no|yes|all>   in a cluster: read from primaries, replicas, or all
  --enable-tracking    CLIENT TRACKING on
  --seed <n>           seed of the random numbers
  -x                   read the last argument from standard input
  -I                   only open the connections, and wait
  -l                   repeat forever
  --num-functions <n>, --num-keys-in-fcall <n>
                       for the tests function_load and fcall

Report
  -q                   one line per test
  --csv                as CSV
  --precision <n>      significant digits of latencies (3)
  --help, --version
";

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, Ending> {
        Options::parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn options_and_the_command() {
        let options = parse("-c 5 -n 10 -t SET,get -P 3 -r 50 --sequential -q -- set -x").unwrap();
        assert_eq!(
            (options.clients, options.requests, options.pipeline, options.keyspace),
            (5, 10, 3, Some(50))
        );
        assert!(options.wants("set") && options.wants("get") && !options.wants("incr") && options.sequential);
        assert_eq!(options.command, [b"set".to_vec(), b"-x".to_vec()]);
        let options = parse("-u redis://u:p@h:9/2 -d 0 -r -5 incr k").unwrap();
        assert_eq!((options.address, options.db, options.data_bytes), (Address::tcp("h", 9), 2, 1));
        assert_eq!((options.keyspace, options.command.len()), (Some(0), 2));
        assert!(parse("").unwrap().wants("anything"));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (line, why) in [
            ("-n 5 --duration 1", EXCLUSIVE),
            ("--duration 1 -n 5", EXCLUSIVE),
            ("-p 65536", "Invalid server port."),
            ("--nonsense x", "Invalid option \"--nonsense\""),
            ("-c", "Invalid option \"-c\""),
            ("--rfr x", "Invalid option \"--rfr\""),
        ] {
            let Err(Ending::Wrong(said)) = parse(line) else { panic!("{line}") };
            assert!(said.starts_with(why), "{line}: {said}");
        }
    }
}
