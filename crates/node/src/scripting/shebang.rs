//! The first line of a script: `#!lua flags=no-writes,allow-stale`.

/// Flags that a script declares, as bits. Without a shebang line nothing is declared, and its commands are
/// judged one by one.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ScriptFlags(u8);

impl ScriptFlags {
    pub const NO_WRITES: ScriptFlags = ScriptFlags(1);
    pub const ALLOW_OOM: ScriptFlags = ScriptFlags(1 << 1);
    pub const ALLOW_STALE: ScriptFlags = ScriptFlags(1 << 2);
    pub const NO_CLUSTER: ScriptFlags = ScriptFlags(1 << 3);
    pub const ALLOW_CROSS_SLOT: ScriptFlags = ScriptFlags(1 << 4);
    /// Mark of a script without a shebang line.
    pub const UNDECLARED: ScriptFlags = ScriptFlags(1 << 5);

    pub const NAMES: [(&str, ScriptFlags); 5] = [
        ("no-writes", ScriptFlags::NO_WRITES),
        ("allow-oom", ScriptFlags::ALLOW_OOM),
        ("allow-stale", ScriptFlags::ALLOW_STALE),
        ("no-cluster", ScriptFlags::NO_CLUSTER),
        ("allow-cross-slot-keys", ScriptFlags::ALLOW_CROSS_SLOT),
    ];

    /// Makes the flags of a function from the bits that an interpreter gives, in the order of `NAMES`.
    pub const fn of_bits(bits: u8) -> ScriptFlags {
        ScriptFlags(bits & 0x1f)
    }

    pub const fn or(self, other: ScriptFlags) -> ScriptFlags {
        ScriptFlags(self.0 | other.0)
    }

    pub const fn has(self, any: ScriptFlags) -> bool {
        self.0 & any.0 != 0
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shebang {
    pub flags: ScriptFlags,
    /// Offset of the code: the end of the shebang line, so that lines keep their numbers.
    pub code_from: usize,
}

/// Reads the first line. The error is Valkey's text.
pub fn read(body: &[u8]) -> Result<Shebang, Vec<u8>> {
    if !body.starts_with(b"#!") {
        return Ok(Shebang { flags: ScriptFlags::UNDECLARED, code_from: 0 });
    }
    // A NUL ends the line as well, and then nothing follows it.
    let end = body.iter().position(|byte| matches!(byte, b'\n' | 0)).filter(|end| body[*end] == b'\n');
    let end = end.ok_or(&b"ERR Invalid script shebang"[..])?;
    let mut parts = body[..end].split(u8::is_ascii_whitespace).filter(|part| !part.is_empty());
    let engine = parts.next().unwrap_or_default().get(2..).unwrap_or_default();
    let mut flags = ScriptFlags::default();
    for part in parts {
        let Some(names) = part.strip_prefix(b"flags=") else {
            return Err([b"ERR Unknown lua shebang option: ", part].concat());
        };
        // Nothing after `flags=` is no flag.
        for name in names.split(|&byte| byte == b',').filter(|_| !names.is_empty()) {
            match ScriptFlags::NAMES.iter().find(|(known, _)| known.as_bytes() == name) {
                Some((_, flag)) => flags = flags.or(*flag),
                None => return Err([b"ERR Unexpected flag in script shebang: ", name].concat()),
            }
        }
    }
    match engine.eq_ignore_ascii_case(b"lua") {
        true => Ok(Shebang { flags, code_from: end }),
        false => Err([b"ERR Could not find scripting engine '", engine, b"'"].concat()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_lines() {
        let ok = |body: &str, flags, code_from| {
            assert_eq!(read(body.as_bytes()), Ok(Shebang { flags, code_from }), "{body}");
        };
        ok("return 1", ScriptFlags::UNDECLARED, 0);
        ok("#!lua\nreturn 1", ScriptFlags::default(), 5);
        ok("#!lua flags=\nreturn 1", ScriptFlags::default(), 12);
        let both = ScriptFlags::NO_WRITES.or(ScriptFlags::ALLOW_STALE);
        ok("#!lua flags=no-writes,allow-stale\nreturn 1", both, 33);
        let fails = |body: &str, text: &str| {
            let error = read(body.as_bytes()).expect_err(body);
            assert_eq!(String::from_utf8_lossy(&error), text);
        };
        fails("#!lua", "ERR Invalid script shebang");
        fails("#!lua\0\n", "ERR Invalid script shebang");
        fails("#!lua name=x\n", "ERR Unknown lua shebang option: name=x");
        fails("#!lua flags=x\n", "ERR Unexpected flag in script shebang: x");
        fails("#!perl\n", "ERR Could not find scripting engine 'perl'");
    }
}
