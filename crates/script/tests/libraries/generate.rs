//! Random calls: values, texts that are nearly right, formats, numbers at the edges of everything.

use isotherm_script::libraries::{ALL, State};
use isotherm_script::tape::{Writer, tags, types};
use isotherm_stdx::{Prng, format_f64};

pub struct Case {
    pub name: &'static str,
    /// The arguments, as a tape.
    pub args: Vec<u8>,
}

pub fn case(prng: &mut Prng, library: &str) -> Case {
    match library {
        "cjson" => cjson(prng),
        "cmsgpack" => cmsgpack(prng),
        "struct" => structs(prng),
        _ => bits(prng),
    }
}

fn of(name: &'static str, write: impl FnOnce(&mut Vec<u8>)) -> Case {
    let mut args = Vec::new();
    write(&mut args);
    Case { name, args }
}

const EDGES: [f64; 24] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    127.0,
    128.0,
    255.0,
    256.0,
    65535.0,
    65536.0,
    2147483647.0,
    2147483648.0,
    4294967295.0,
    4294967296.0,
    9007199254740992.0,
    9223372036854775808.0,
    18446744073709551616.0,
    1e14,
    1e15,
    1e-5,
    f64::INFINITY,
    5e-324,
    f64::MAX,
];

fn number(prng: &mut Prng) -> f64 {
    let value = match prng.below(8) {
        0 | 1 => *prng.pick(&EDGES) + prng.below(3) as f64 - 1.0,
        2 => *prng.pick(&EDGES),
        3 => prng.below(1000) as f64 / *prng.pick(&[1.0, 2.0, 4.0, 10.0, 100.0, 1000.0]),
        4 => prng.below(1 << 53) as f64 / 10f64.powi(prng.below(30) as i32),
        5 => f64::from_bits(prng.next_u64()),
        _ => prng.below(20) as f64,
    };
    if prng.one_in(4) { -value } else { value }
}

fn text(prng: &mut Prng) -> Vec<u8> {
    let len = match prng.below(12) {
        0 => 0,
        1 => 30 + prng.below(4),
        2 => 250 + prng.below(12),
        _ => prng.below(12),
    };
    (0..len)
        .map(|_| match prng.below(6) {
            0 => prng.below(256) as u8,
            1 => *prng.pick(b"\"\\/\n\0\x7f\t"),
            _ => b'a' + prng.below(26) as u8,
        })
        .collect()
}

fn scalar(prng: &mut Prng, out: &mut Vec<u8>) {
    let mut writer = Writer::new(out);
    match prng.below(16) {
        0 => writer.boolean(true),
        1 => writer.boolean(false),
        2 => writer.null(),
        3 if prng.one_in(12) => out.extend([tags::OTHER, types::FUNCTION]),
        3..=8 => writer.number(number(prng)),
        _ => writer.string(&text(prng)),
    }
}

fn value(prng: &mut Prng, depth: u32, out: &mut Vec<u8>) {
    if depth == 0 || prng.one_in(3) {
        return scalar(prng, out);
    }
    Writer::new(out).table(0, 0);
    let count = if prng.one_in(20) { 15 + prng.below(4) } else { prng.below(6) };
    let kind = prng.below(8);
    for index in 1..=count {
        match kind {
            0..=2 => Writer::new(out).number(index as f64),
            3 => Writer::new(out).number((count + 1 - index) as f64),
            4 => Writer::new(out).number(prng.below(14) as f64),
            5 if prng.one_in(3) => Writer::new(out).number(number(prng)),
            6 if prng.one_in(6) => scalar(prng, out),
            7 if prng.one_in(30) => value(prng, depth - 1, out),
            _ => Writer::new(out).string(&text(prng)),
        }
        value(prng, depth - 1, out);
    }
    Writer::new(out).table_end();
}

/// Cuts, changes, inserts: one text of three.
fn damaged(prng: &mut Prng, mut text: Vec<u8>) -> Vec<u8> {
    if prng.below(3) > 0 || text.is_empty() {
        return text;
    }
    let at = prng.below(text.len() as u64) as usize;
    match prng.below(4) {
        0 => text.truncate(at),
        1 => text[at] = prng.below(256) as u8,
        2 => text[at] = *prng.pick(b"[]{},:\"\\0 9eEx+-.untf\0"),
        _ => text.insert(at, *prng.pick(b"[]{},:\"\\0 9eEx+-.untf\0")),
    }
    text
}

const NUMBERS: [&str; 24] = [
    "0",
    "-0",
    "01",
    "+1",
    "1.",
    ".5",
    "1e5",
    "1E-7",
    "1e400",
    "1e-400",
    "0x1F",
    "0x.8p3",
    "0X",
    "-0x1p-1074",
    "inf",
    "-inf",
    "Infinity",
    "nan",
    "-NaN",
    "nan(12)",
    "1e",
    "1e+",
    "-",
    "123456789012345678901234567890",
];

fn json(prng: &mut Prng, depth: u32, out: &mut Vec<u8>) {
    let blank = |prng: &mut Prng, out: &mut Vec<u8>| {
        if prng.one_in(8) {
            out.push(*prng.pick(b" \t\r\n\x0b"));
        }
    };
    blank(prng, out);
    match prng.below(if depth == 0 { 6 } else { 12 }) {
        0 => out.extend_from_slice(prng.pick(&["true", "false", "null", "nul", "True"]).as_bytes()),
        1 if prng.one_in(4) => out.extend_from_slice(prng.pick(&NUMBERS).as_bytes()),
        1 | 2 => {
            let value = number(prng);
            let text = if prng.one_in(2) { format_f64(value) } else { format!("{value:.9e}") };
            out.extend_from_slice(text.as_bytes());
        }
        3..=5 => json_string(prng, out),
        kind => {
            let is_object = kind > 8;
            out.push(if is_object { b'{' } else { b'[' });
            for index in 0..prng.below(5) {
                if index > 0 {
                    out.push(b',');
                }
                if is_object {
                    json_string(prng, out);
                    blank(prng, out);
                    out.push(b':');
                }
                json(prng, depth - 1, out);
                blank(prng, out);
            }
            out.push(if is_object { b'}' } else { b']' });
        }
    }
    blank(prng, out);
}

/// Sound or not, of some depth.
pub fn json_text(prng: &mut Prng) -> Vec<u8> {
    let mut out = Vec::new();
    json(prng, 5, &mut out);
    out
}

fn json_string(prng: &mut Prng, out: &mut Vec<u8>) {
    const ESCAPES: [&str; 16] = [
        "\\n",
        "\\\"",
        "\\\\",
        "\\/",
        "\\u0041",
        "\\u20ac",
        "\\ud83d\\ude00",
        "\\u0000",
        "\\u00E4",
        "\\uD800",
        "\\udc00",
        "\\u12",
        "\\x",
        "\\b",
        "\\ud83d\\u0041",
        "\\uffff",
    ];
    out.push(b'"');
    for _ in 0..prng.below(6) {
        match prng.below(20) {
            0 => out.extend_from_slice(prng.pick(&ESCAPES).as_bytes()),
            1 => out.extend_from_slice("€".as_bytes()),
            2 => out.push(0x80 | prng.below(128) as u8),
            _ => out.push(b'a' + prng.below(26) as u8),
        }
    }
    out.push(b'"');
}

fn cjson(prng: &mut Prng) -> Case {
    // No 0: an array that may be sparse without limit takes Valkey all of the memory.
    let setting = |name, prng: &mut Prng, most: u64| {
        of(name, |out| {
            for _ in 0..prng.below(most + 2) {
                match prng.below(6) {
                    0 => Writer::new(out).string(&text(prng)),
                    1 => Writer::new(out).nil(),
                    2 => Writer::new(out).boolean(prng.one_in(2)),
                    3 => Writer::new(out).string(prng.pick(&["on", "off", "null", "3"]).as_bytes()),
                    _ => Writer::new(out).number(1.0 + prng.below(20) as f64),
                }
            }
        })
    };
    match prng.below(60) {
        0 => setting("encode_sparse_array", prng, 3),
        1 => setting("encode_max_depth", prng, 1),
        2 => setting("decode_max_depth", prng, 1),
        3 => setting("encode_number_precision", prng, 1),
        4 => setting("encode_keep_buffer", prng, 1),
        5 => setting("encode_invalid_numbers", prng, 1),
        6 => setting("decode_invalid_numbers", prng, 1),
        7..=30 => of("encode", |out| value(prng, 4, out)),
        31 => of("decode", |out| scalar(prng, out)),
        _ => of("decode", |out| {
            let mut text = Vec::new();
            json(prng, 4, &mut text);
            let text = damaged(prng, text);
            Writer::new(out).string(&text);
        }),
    }
}

fn cmsgpack(prng: &mut Prng) -> Case {
    if prng.one_in(3) {
        return of("pack", |out| {
            for _ in 0..1 + prng.below(3) {
                let depth = if prng.one_in(50) { 20 } else { 4 };
                value(prng, depth.min(5), out);
            }
        });
    }
    let name = *prng.pick(&["unpack", "unpack", "unpack_one", "unpack_limit"]);
    of(name, |out| {
        let text = match prng.below(8) {
            0 => text(prng),
            1 => (0..prng.below(40)).map(|_| prng.below(256) as u8).collect(),
            _ => {
                let mut text = Vec::new();
                for _ in 0..1 + prng.below(3) {
                    message(prng, 4, &mut text);
                }
                damaged(prng, text)
            }
        };
        let len = text.len() as u64;
        Writer::new(out).string(&text);
        let arguments = match name {
            "unpack" => 0,
            "unpack_one" => prng.below(2),
            _ => prng.below(3),
        };
        for _ in 0..arguments {
            match prng.below(12) {
                0 => scalar(prng, out),
                1 => Writer::new(out).number(-1.0),
                2 => Writer::new(out).number((len + prng.below(2)) as f64),
                _ => Writer::new(out).number(prng.below(4) as f64),
            }
        }
    })
}

/// Appends a random message in any of the forms that its length allows.
fn message(prng: &mut Prng, depth: u32, out: &mut Vec<u8>) {
    match prng.below(if depth == 0 { 8 } else { 12 }) {
        0 => out.push(*prng.pick(&[0xc0, 0xc2, 0xc3, 0x7f, 0x80, 0x90, 0xa0, 0xe0, 0xff])),
        1 => {
            let (head, bytes) = *prng.pick(&[
                (0xcc, 1),
                (0xcd, 2),
                (0xce, 4),
                (0xcf, 8),
                (0xd0, 1),
                (0xd1, 2),
                (0xd2, 4),
                (0xd3, 8),
                (0xca, 4),
                (0xcb, 8),
            ]);
            out.push(head);
            out.extend((0..bytes).map(|_| prng.below(256) as u8));
        }
        2 if prng.one_in(20) => out.push(prng.below(256) as u8),
        2..=4 => {
            let mut args = Vec::new();
            scalar(prng, &mut args);
            out.extend_from_slice(&packed(&args));
        }
        5..=7 => head(prng, (0xa0, 31, 0xd9), 0, out),
        8 | 9 => {
            let count = prng.below(5);
            head(prng, (0x90, 15, 0xdb), count as u32, out);
            (0..count).for_each(|_| message(prng, depth - 1, out));
        }
        _ => {
            let count = prng.below(5);
            head(prng, (0x80, 15, 0xdd), count as u32, out);
            for _ in 0..count {
                if prng.one_in(8) {
                    message(prng, depth - 1, out);
                } else {
                    out.extend([0xa1, b'a' + prng.below(6) as u8]);
                }
                message(prng, depth - 1, out);
            }
        }
    }
}

fn head(prng: &mut Prng, (short, most, long): (u8, u32, u8), len: u32, out: &mut Vec<u8>) {
    let first = if long == 0xd9 { 1 } else { 0 };
    match prng.below(4) {
        0 if first == 1 => out.extend([long, len as u8]),
        1 => {
            out.push(long + 1);
            out.extend((len as u16).to_be_bytes());
        }
        2 => {
            out.push(long + 2);
            out.extend(len.to_be_bytes());
        }
        _ => out.push(short | len.min(most) as u8),
    }
}

/// Packs the arguments with these libraries: their other results are compared elsewhere.
fn packed(args: &[u8]) -> Vec<u8> {
    let pack = crate::calls::function("cmsgpack", "pack");
    match crate::calls::call(&mut State::default(), pack, args) {
        crate::calls::Outcome::Results(tape) => tape[5..].to_vec(),
        crate::calls::Outcome::Error(text) => panic!("{text}"),
    }
}

fn format(prng: &mut Prng) -> Vec<u8> {
    let mut out = Vec::new();
    for _ in 0..prng.below(8) {
        match prng.below(24) {
            0 => out.extend_from_slice(
                prng.pick(&[">", "<", " ", "!", "!2", "!4", "!16", "!3", "!0"]).as_bytes(),
            ),
            1 | 2 => out.push(*prng.pick(b"<>")),
            3..=6 => {
                out.extend_from_slice(format!("{}{}", prng.pick(&["i", "I"]), prng.below(18)).as_bytes())
            }
            7 if prng.one_in(4) => out.extend_from_slice(b"i33"),
            8 => out.extend_from_slice(format!("c{}", prng.below(5)).as_bytes()),
            9 if prng.one_in(6) => out.push(prng.below(256) as u8),
            _ => out.push(*prng.pick(b"bBhHlLTiIfdscx")),
        }
    }
    out
}

fn structs(prng: &mut Prng) -> Case {
    let format = format(prng);
    match prng.below(8) {
        0 => of("size", |out| Writer::new(out).string(&format)),
        1..=3 => of("pack", |out| {
            Writer::new(out).string(&format);
            let is_text = |byte: &u8| matches!(byte, b's' | b'c');
            for byte in format.iter().filter(|byte| byte.is_ascii_alphabetic() && **byte != b'x') {
                match (prng.below(20), is_text(byte)) {
                    (0, _) => scalar(prng, out),
                    (_, true) => Writer::new(out).string(&text(prng)),
                    (1, _) => Writer::new(out).string(prng.pick(&NUMBERS).as_bytes()),
                    _ => Writer::new(out).number(number(prng)),
                }
            }
        }),
        _ => of("unpack", |out| {
            Writer::new(out).string(&format);
            let small = prng.one_in(2);
            let byte = |prng: &mut Prng| prng.below(if small { 4 } else { 256 }) as u8;
            let len = prng.below(80);
            let data: Vec<u8> = (0..len).map(|_| byte(prng)).collect();
            Writer::new(out).string(&data);
            match prng.below(10) {
                0 => scalar(prng, out),
                1 => Writer::new(out).number(prng.below(len + 3) as f64),
                2 => Writer::new(out).number(number(prng)),
                _ => {}
            }
        }),
    }
}

fn bits(prng: &mut Prng) -> Case {
    let library = ALL.iter().find(|library| library.name == "bit").expect("a library");
    let name = prng.pick(library.functions).name;
    of(name, |out| {
        for _ in 0..prng.below(4) {
            match prng.below(24) {
                0 => scalar(prng, out),
                1 => Writer::new(out).string(prng.pick(&NUMBERS).as_bytes()),
                2..=6 => Writer::new(out).number(prng.below(80) as f64 - 40.0),
                _ => Writer::new(out).number(number(prng)),
            }
        }
    })
}
