//! Walking all keys with SCAN, and `--scan`, which lists them.

use std::sync::atomic::Ordering;

use isotherm_resp::reply_parse::Value;

use super::{call, error_text, stop_flag};
use crate::Fallible;
use crate::connection::push_request;
use crate::options::Options;
use crate::render::Format;
use crate::session::Session;
use crate::terminal::put;
use crate::text::push_quoted;

/// A walk over the keys that the options choose.
#[derive(Default)]
pub struct Walk {
    cursor: u64,
    pub steps: u64,
    pub done: bool,
}

impl Walk {
    /// The next keys; none does not mean the end.
    pub fn step(&mut self, session: &mut Session) -> Fallible<Vec<Vec<u8>>> {
        let request = request(self.cursor, &session.options);
        let reply = session.connection()?.call(&request).map_err(|_| "\nI/O error".to_string())?;
        if let Some(error) = error_text(&reply) {
            return Err(format!("SCAN error: {error}"));
        }
        let Value::Array(parts) = reply else { return Err("Non ARRAY response from SCAN!".to_string()) };
        let [Value::Bulk(cursor), Value::Array(keys)] = parts.as_slice() else {
            return Err("Invalid element count from SCAN!".to_string());
        };
        self.cursor = isotherm_stdx::parse_u64(cursor).ok_or("Invalid cursor from SCAN!")?;
        self.done = self.cursor == 0;
        self.steps += 1;
        keys.iter()
            .map(|key| match key {
                Value::Bulk(key) => Ok(key.clone()),
                _ => Err("Invalid key from SCAN!".to_string()),
            })
            .collect()
    }
}

fn request(cursor: u64, options: &Options) -> Vec<Vec<u8>> {
    let mut request = vec![b"SCAN".to_vec(), cursor.to_string().into_bytes()];
    if let Some(pattern) = &options.pattern {
        request.extend([b"MATCH".to_vec(), pattern.clone()]);
    }
    request.extend([b"COUNT".to_vec(), options.count.to_string().into_bytes()]);
    if let Some(type_name) = &options.type_name {
        request.extend([b"TYPE".to_vec(), type_name.clone()]);
    }
    request
}

/// Sends one command for each key, all of them before it waits for the first reply. Keys without a command
/// get no reply.
pub fn ask_each(
    session: &mut Session,
    keys: &[Vec<u8>],
    command: impl Fn(usize, &[u8]) -> Option<Vec<Vec<u8>>>,
) -> Fallible<Vec<Option<Value>>> {
    let mut requests = Vec::new();
    let asked: Vec<bool> = keys
        .iter()
        .enumerate()
        .map(|(at, key)| command(at, key).map(|args| push_request(&mut requests, &args)).is_some())
        .collect();
    let connection = session.connection()?;
    let lost = |_| "\nI/O error".to_string();
    connection.write(&requests).map_err(lost)?;
    asked.into_iter().map(|asked| asked.then(|| connection.read().map_err(lost)).transpose()).collect()
}

pub fn list(session: &mut Session) -> Fallible<i32> {
    let stop = stop_flag()?;
    let mut walk = Walk::default();
    while !walk.done && !stop.load(Ordering::Relaxed) {
        let mut out = Vec::new();
        for key in walk.step(session)? {
            match session.options.style.format {
                Format::Standard => push_quoted(&mut out, &key),
                _ => out.extend(key),
            }
            out.push(b'\n');
        }
        put(out);
        std::thread::sleep(session.options.interval);
    }
    Ok(0)
}

pub fn db_size(session: &mut Session) -> Fallible<u64> {
    let reply = call(session, &["DBSIZE"])?;
    match (&reply, error_text(&reply)) {
        (_, Some(error)) => Err(format!("Couldn't determine DBSIZE: {error}")),
        (Value::Integer(size), _) => Ok(size.unsigned_abs()),
        _ => Err("Non INTEGER response from DBSIZE!".to_string()),
    }
}

/// A replica of a cluster answers reads only after this.
pub fn read_only(session: &mut Session) -> Fallible {
    match error_text(&call(session, &["READONLY"])?) {
        Some(error) if !error.contains("cluster support disabled") && !error.contains("unknown command") => {
            Err(format!("Error: {error}"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_choose_the_keys() {
        let mut options = Options::new(true);
        let shown = |options: &Options| String::from_utf8(request(7, options).join(&b' ')).unwrap();
        assert_eq!(shown(&options), "SCAN 7 COUNT 10");
        options.pattern = Some(b"a*".to_vec());
        options.type_name = Some(b"hash".to_vec());
        assert_eq!(shown(&options), "SCAN 7 MATCH a* COUNT 10 TYPE hash");
    }
}
