//! `--stat`: one line of figures from INFO, again and again.

use std::time::Duration;

use isotherm_resp::reply_parse::Value;

use super::{call_patiently, error_text};
use crate::Fallible;
use crate::session::Session;
use crate::terminal::put;
use crate::text::{leading_i64, size_human};

const HEAD: &str = "\
------- data ------ --------------------- load -------------------- - child -
keys       mem      clients blocked requests            connections          
";
const LINES_PER_HEAD: u64 = 20;
const INTERVAL: Duration = Duration::from_secs(1);

pub fn run(session: &mut Session) -> Fallible<i32> {
    let interval = session.options.interval;
    let interval = if interval.is_zero() { INTERVAL } else { interval };
    session.connection()?;
    let mut requests = 0;
    for line in 0.. {
        let reply = call_patiently(session, &["INFO"])?;
        if let Some(error) = error_text(&reply) {
            return Err(format!("ERROR: {error}"));
        }
        let (Value::Bulk(info) | Value::Verbatim { text: info, .. }) = reply else {
            return Err("Invalid reply to INFO".to_string());
        };
        if line % LINES_PER_HEAD == 0 {
            put(HEAD);
        }
        let info = String::from_utf8_lossy(&info);
        put(figures(&info, &mut requests));
        std::thread::sleep(interval);
    }
    Ok(0)
}

/// The number of a field, up to a comma; 0 if INFO does not have it.
fn field(info: &str, name: &str) -> i64 {
    let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.map_or(0, leading_i64)
}

fn figures(info: &str, requests: &mut i64) -> String {
    // db0:keys=3,expires=0,...
    let keys: i64 = info
        .lines()
        .filter_map(|line| line.strip_prefix("db")?.split_once(":keys="))
        .filter(|(db, _)| db.bytes().all(|byte| byte.is_ascii_digit()))
        .map(|(_, keys)| leading_i64(keys))
        .sum();
    let total = field(info, "total_commands_processed");
    let more = if *requests == 0 { 0 } else { total - *requests };
    *requests = total;
    let child = match (
        field(info, "rdb_bgsave_in_progress") != 0,
        field(info, "aof_rewrite_in_progress") != 0,
        field(info, "loading") != 0,
    ) {
        (true, true, _) => "SAVE+AOF",
        (true, ..) => "SAVE",
        (_, true, _) => "AOF",
        (_, _, true) => "LOAD",
        _ => "",
    };
    format!(
        "{keys:<11}{:<8} {:<8}{:<8}{:<19} {:<12}{child}\n",
        size_human(field(info, "used_memory")),
        field(info, "connected_clients"),
        field(info, "blocked_clients"),
        format!("{total} (+{more})"),
        field(info, "total_connections_received"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_figures() {
        let info = "connected_clients:3\r\nblocked_clients:1\r\nused_memory_rss:9\r\nused_memory:2097152\r\n\
            total_commands_processed:50\r\ntotal_connections_received:4\r\nloading:1\r\n\
            db0:keys=2,expires=0\r\ndb11:keys=5,expires=1\r\ndbx:keys=9\r\n";
        let mut requests = 0;
        let line = "7          2.00M    3       1       50 (+0)             4           LOAD\n";
        assert_eq!(figures(info, &mut requests), line);
        assert!(figures(&info.replace(":50", ":80"), &mut requests).contains("80 (+30)"));
    }
}
