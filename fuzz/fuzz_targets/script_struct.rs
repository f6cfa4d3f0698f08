//! Any format and any data: `struct.unpack` gives an error, or values that `struct.pack` takes again.
#![no_main]

use isotherm_script::tape::{Item, Reader, Writer};
use libfuzzer_sys::fuzz_target;

mod script;
use script::{call, text};

fuzz_target!(|input: &[u8]| {
    let [cut, position, bytes @ ..] = input else { return };
    let (format, data) = bytes.split_at(usize::from(*cut).min(bytes.len()));
    call("struct", "size", &text(format), 1);
    let mut args = text(format);
    args.extend(text(data));
    Writer::new(&mut args).number(f64::from(*position as i8));
    let Some(values) = call("struct", "unpack", &args, 3) else { return };
    let mut reader = Reader::new(&values);
    let (mut last, mut count) = (None, 0);
    while let Some(item) = reader.next() {
        last = Some(item);
        count += 1;
    }
    let Some(Item::Number(next)) = last else { panic!("{last:?}") };
    // Without a value nothing has been compared with the data.
    assert!(count == 1 || next <= 1.0 + data.len() as f64, "{next}");
    let mut args = text(format);
    args.extend_from_slice(&values);
    call("struct", "pack", &args, count + 1);
});
