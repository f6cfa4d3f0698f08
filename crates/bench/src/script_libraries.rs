//! The costs of the libraries of scripts: values there and back through cjson and cmsgpack, and Lua alone,
//! CPU per round.
//!
//! One client runs EVALSHA of a script that does many rounds, so that nothing but the interpreter and the
//! library is measured. Both servers take turns, A B A B, and what the script returns has to be the same on
//! both.

use isotherm_resp::reply_parse::Value;

use crate::options::Options;
use crate::process::{SIDES, Server, Setting};
use crate::report::Table;
use crate::{Fallible, progress};

pub const ROWS: [&str; 5] = ["cjson-short", "cjson-long", "cmsgpack-short", "cmsgpack-long", "additions"];

const SHORT: &str = r#"{"id":1234567,"name":"some text","tags":["a","bb","c"],"ok":true,"f":1.5}"#;

const LONG: &str = r#"{"id":"job:1234567","name":"send-email","timestamp":1732567890123,"attempts":3,"delay":0,"priority":5,
"opts":{"removeOnComplete":true,"backoff":{"type":"exponential","delay":1000},"jobId":null,"tags":["billing","eu-west","retry"]},
"data":{"to":"someone@example.com","subject":"Your invoice is ready","body":"Dear customer, your invoice number 2024-1234 is
 attached. Kind regards.","amounts":[12.5,99.99,1000,0.1],"address":{"street":"Long Street 12","city":"Springfield","zip":"12345"}},
"history":[{"at":1732567890123,"state":"active","worker":"worker-0"},{"at":1732567890124,"state":"waiting","worker":"worker-1"},
{"at":1732567890125,"state":"active","worker":"worker-2"},{"at":1732567890126,"state":"waiting","worker":"worker-3"}]}"#;

const JSON: &str = "local text = ARGV[1] for i = 1, tonumber(ARGV[2]) do cjson.encode(cjson.decode(text)) end \
                    return cjson.encode(cjson.decode(text))";
const MSGPACK: &str = "local text = cmsgpack.pack(cjson.decode(ARGV[1])) \
                       for i = 1, tonumber(ARGV[2]) do cmsgpack.pack(cmsgpack.unpack(text)) end \
                       return cmsgpack.pack(cmsgpack.unpack(text))";
const ADDITIONS: &str =
    "local sum = 0 for i = 1, tonumber(ARGV[2]) do sum = sum + i end return tostring(sum)";

/// Rounds of an EVALSHA with a short text. They take milliseconds, so that the scheduler's clock is fine
/// enough.
const ROUNDS_SHORT: u64 = 20_000;
const CALLS: u64 = 10;

fn script_of(row: &str) -> (&'static str, &'static str, u64) {
    match row {
        "cjson-short" => (JSON, SHORT, ROUNDS_SHORT),
        "cjson-long" => (JSON, LONG, ROUNDS_SHORT / 5),
        "cmsgpack-short" => (MSGPACK, SHORT, ROUNDS_SHORT),
        "cmsgpack-long" => (MSGPACK, LONG, ROUNDS_SHORT / 5),
        _ => (ADDITIONS, "", 1_000_000),
    }
}

pub fn measure(options: &Options) -> Fallible<Vec<Table>> {
    let title = format!("Libraries of scripts, one worker, one core{}", options.scale_note());
    let head = ["", "Valkey, us a round", "Isotherm, us a round", "ratio"];
    let mut table = Table::new("script-libraries", title, &head);
    table.note(format!(
        "cjson and cmsgpack: decoding a value of {} B or {} B of JSON and encoding it again; additions: a million in a loop. \
         EVALSHA of many rounds, {} rounds A B, the least of each; CPU of the server.",
        SHORT.len(),
        LONG.len(),
        options.rounds
    ));
    if !ROWS.iter().any(|row| options.wants(row)) {
        return Ok(vec![table]);
    }
    let [first, second] = SIDES.map(|side| Server::start(side, &Setting::one_core(), options));
    let servers = [first?, second?];
    for row in ROWS.into_iter().filter(|row| options.wants(row)) {
        let mut best = [f64::MAX; 2];
        let mut said: Option<Value> = None;
        for _ in 0..options.rounds {
            for (server, best) in servers.iter().zip(&mut best) {
                let (us, value) = run_once(server, row, options)?;
                *best = best.min(us);
                if *said.get_or_insert_with(|| value.clone()) != value {
                    return Err(format!("{row}: {value} on {}", server.side.name()));
                }
            }
        }
        let ratio = best[1] / best[0];
        progress(&format!("{row}: {:.2} and {:.2} us, ratio {ratio:.2}", best[0], best[1]));
        table.row([
            row.to_string(),
            format!("{:.2}", best[0]),
            format!("{:.2}", best[1]),
            format!("{ratio:.2}"),
        ]);
    }
    Ok(vec![table])
}

/// Microseconds of CPU a round (of the additions, for all), and what the script returned.
fn run_once(server: &Server, row: &str, options: &Options) -> Fallible<(f64, Value)> {
    let (script, text, rounds) = script_of(row);
    let mut client = server.client()?;
    let Value::Bulk(sha) = client.call(&["SCRIPT", "LOAD", script])? else {
        return Err("SCRIPT LOAD gives no hash".to_string());
    };
    let sha = String::from_utf8_lossy(&sha).into_owned();
    client.call(&["EVALSHA", &sha, "0", text, "10"])?;
    let calls = options.scaled(CALLS);
    let before = server.cpu_ns()?;
    let mut value = Value::Null;
    for _ in 0..calls {
        value = client.call(&["EVALSHA", &sha, "0", text, &rounds.to_string()])?;
    }
    let us = (server.cpu_ns()? - before) as f64 / 1e3;
    let of = if row == "additions" { calls } else { calls * rounds };
    Ok((us / of as f64, value))
}
