//! Replies as people read them: `["a",1,NULL]`.

use isotherm_stdx::quoted::push_quoted;

/// Maximum depth; deeper levels are not shown.
const DEPTH_MAX: usize = 256;

/// Appends a reply in wire form. A value that cannot be read ends it.
pub fn push_reply(out: &mut Vec<u8>, reply: &[u8]) {
    let _ = push_value(out, reply, 0);
}

/// Appends the value that `wire` begins with. Returns the rest after it, if there is such a value.
fn push_value<'r>(out: &mut Vec<u8>, wire: &'r [u8], depth: usize) -> Option<&'r [u8]> {
    let end = wire.iter().position(|&byte| byte == b'\r')?;
    let (line, rest) = (&wire[..end], wire.get(end + 2..)?);
    let (kind, text) = line.split_first()?;
    if depth > DEPTH_MAX {
        return None;
    }
    match kind {
        b':' => out.extend_from_slice(text),
        b'+' | b'-' => push_quoted(out, line),
        b'_' => out.extend(b"(null)"),
        b'#' => out.extend_from_slice(if text.starts_with(b"t") { b"#true" } else { b"#false" }),
        b',' => {
            out.extend(b"(double) ");
            out.extend_from_slice(text);
        }
        b'$' => {
            let Some(len) = length(text)? else {
                out.extend(b"NULL");
                return Some(rest);
            };
            push_quoted(out, rest.get(..len)?);
            return rest.get(len + 2..);
        }
        b'*' => {
            let Some(count) = length(text)? else {
                out.extend(b"NULL");
                return Some(rest);
            };
            return push_all(out, rest, count, ["[", "]"], depth);
        }
        b'~' => return push_all(out, rest, length(text)??, ["~(", ")"], depth),
        b'%' => return push_pairs(out, rest, length(text)??, depth),
        // Valkey knows no more kinds, and shows nothing of them.
        _ => return None,
    }
    Some(rest)
}

/// Returns a length; the inner `None` is the length of a null.
fn length(text: &[u8]) -> Option<Option<usize>> {
    let number: i64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    Some(usize::try_from(number).ok())
}

fn push_all<'r>(
    out: &mut Vec<u8>,
    mut wire: &'r [u8],
    count: usize,
    [open, close]: [&str; 2],
    depth: usize,
) -> Option<&'r [u8]> {
    out.extend(open.bytes());
    for at in 0..count {
        if at > 0 {
            out.push(b',');
        }
        wire = push_value(out, wire, depth + 1)?;
    }
    out.extend(close.bytes());
    Some(wire)
}

fn push_pairs<'r>(out: &mut Vec<u8>, mut wire: &'r [u8], count: usize, depth: usize) -> Option<&'r [u8]> {
    out.push(b'{');
    for at in 0..count {
        if at > 0 {
            out.push(b',');
        }
        wire = push_value(out, wire, depth + 1)?;
        out.extend(b" => ");
        wire = push_value(out, wire, depth + 1)?;
    }
    out.push(b'}');
    Some(wire)
}
