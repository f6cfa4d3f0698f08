//! Rewrites and restarts with bases that refer to the disk (`swap-checkpoint`): of keys whose values are
//! there, and of keys that are there with their values (`swap-freeze`).

use std::time::{Duration, Instant};

use isotherm_probe::Client;
use isotherm_resp::reply_parse::Value;
use isotherm_stdx::Prng;

use crate::options::Options;
use crate::process::{Server, Setting, Side};
use crate::report::Table;
use crate::swap::{PATIENCE, send_all, swap};
use crate::{Fallible, progress};

/// Data set that is on disk.
struct Data {
    name: &'static str,
    keys: u64,
    key_bytes: usize,
    value_bytes: usize,
    /// With their values.
    freezes: bool,
    /// Aim for the time of a key, at a start from a base that refers to the data on disk.
    aim: &'static str,
    /// True if a base that refers is compared with one that has all values.
    compares: bool,
}

const DATA: [Data; 2] = [
    Data {
        name: "values",
        keys: 2_000_000,
        key_bytes: 20,
        value_bytes: 400,
        freezes: false,
        aim: "250 ns a key",
        compares: true,
    },
    Data {
        name: "keys of 16 B with values of 16 B",
        keys: 10_000_000,
        key_bytes: 16,
        value_bytes: 16,
        freezes: true,
        aim: "50 ns a key",
        compares: false,
    },
];

pub fn restart(options: &Options, table: &mut Table) -> Fallible {
    DATA.iter().try_for_each(|data| restart_with(options, data, table))
}

impl Data {
    fn away(&self) -> &'static str {
        if self.freezes { "swap_frozen_keys" } else { "swap_keys" }
    }

    fn setting(&self, keys: u64, options: &Options) -> Setting {
        Setting { workers: 2, ..Setting::default() }
            .with("dir", options.scratch.join("swap-restart").display())
            .with("maxmemory", keys * 60 + (256 << 20))
            .with("swap-mode", "yes")
            .with("swap-freeze", if self.freezes { "yes" } else { "no" })
            .with("appendonly", "yes")
            .with("log-memory-limit", 128 << 20)
            .with("auto-aof-rewrite-percentage", 0)
            .with("enable-debug-command", "yes")
    }
}

fn restart_with(options: &Options, data: &Data, table: &mut Table) -> Fallible {
    let keys = options.scaled(data.keys);
    let folder = options.scratch.join("swap-restart");
    std::fs::create_dir_all(&folder).map_err(|why| format!("cannot make {}: {why}", folder.display()))?;
    let setting = data.setting(keys, options);
    let mut server = Server::start(Side::Isotherm, &setting, options)?;
    await_keys(&mut server.client()?, 0)?;
    // Compressed they would take little in a base that has them.
    let mut random = Prng::new(1);
    let value: Vec<u8> = (0..data.value_bytes).map(|_| random.below(256) as u8).collect();
    let key = |number: u64| format!("key:{number:0width$}", width = data.key_bytes - 4);
    send_all(&mut server.client()?, keys, |number, batch| {
        isotherm_probe::command(batch, [&b"SET"[..], key(number).as_bytes(), &value].into_iter());
    })?;
    let bases = [("yes", "refers to them"), ("no", "has them")];
    for (refers, name) in &bases[..1 + usize::from(data.compares)] {
        let mut client = server.client()?;
        client.call(&["DEBUG", "SWAP-CHAOS", "1"])?;
        let waited = Instant::now();
        while swap(&mut client, data.away())? < keys && waited.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(100));
        }
        client.call(&["DEBUG", "SWAP-CHAOS", "0"])?;
        client.call(&["CONFIG", "SET", "swap-checkpoint", refers])?;
        if data.freezes {
            // The first base that refers syncs all that lies on disk, which is another measurement.
            rewrite(&mut client)?;
        }
        let (wrote, bytes) = rewrite(&mut client)?;
        drop(server);
        let begun = Instant::now();
        server = Server::start(Side::Isotherm, &setting.clone().with("swap-checkpoint", refers), options)?;
        let mut client = server.client()?;
        await_keys(&mut client, keys)?;
        let started = begun.elapsed().as_secs_f64();
        let away = swap(&mut client, data.away())?;
        progress(&format!(
            "a base that {name}: {away} of {keys} keys are on disk after the start, {:.0} ns of CPU a key",
            server.cpu_ns()? as f64 / keys as f64
        ));
        let million = keys as f64 / 1e6;
        table.row([
            format!("rewrite, {million:.2} M {} on disk, the base {name}", data.name),
            format!("{wrote:.2} s, {:.1} MB", bytes as f64 / 1e6),
            "-".into(),
        ]);
        table.row([
            "start behind kill -9 from that base, to the first answer".into(),
            format!("{started:.2} s, {:.0} ns a key", started * 1e9 / keys as f64),
            if *refers == "yes" { data.aim } else { "-" }.into(),
        ]);
    }
    drop(server);
    let _ = std::fs::remove_dir_all(&folder);
    Ok(())
}

/// Rewrites the file. Returns how many seconds that takes, and the bytes of the base.
fn rewrite(client: &mut Client) -> Fallible<(f64, u64)> {
    let begun = Instant::now();
    client.call(&["BGREWRITEAOF"])?;
    while client.info("aof_rewrite_in_progress")? != "0" {
        std::thread::sleep(Duration::from_millis(2));
    }
    let wrote = begun.elapsed().as_secs_f64();
    let status = client.info("aof_last_bgrewrite_status")?;
    if status != "ok" {
        return Err(format!("the rewrite ended with '{status}'"));
    }
    Ok((wrote, client.info("aof_base_size")?.parse::<u64>().unwrap_or(0)))
}

fn await_keys(client: &mut Client, keys: u64) -> Fallible {
    let waited = Instant::now();
    while waited.elapsed() < PATIENCE * 5 {
        match client.call(&["DBSIZE"]) {
            Ok(Value::Integer(count)) if count as u64 == keys => return Ok(()),
            Ok(Value::Integer(count)) => return Err(format!("{count} of {keys} keys are there")),
            _ => std::thread::sleep(Duration::from_millis(2)),
        }
    }
    Err("it does not end loading".to_string())
}
