use super::*;
use crate::request::ArgsBuf;

fn shown(text: Vec<u8>) -> String {
    String::from_utf8(text).unwrap()
}

#[test]
fn unknown_commands_show_what_fits() {
    let text = |args: &[&[u8]]| shown(unknown_command(ArgsBuf::from_slices(args).args()));
    assert_eq!(text(&[b"foo"]), "ERR unknown command 'foo', with args beginning with: ");
    assert_eq!(text(&[b"foo", b"a", b"b"]), "ERR unknown command 'foo', with args beginning with: 'a' 'b' ");
    assert_eq!(text(&[b"foo\0x", b"a\0b"]), "ERR unknown command 'foo', with args beginning with: 'a' ");
    // 128 bytes are left for the first argument, -3 for the second: the quotes count as well.
    let long = [b'x'; 200];
    let expected = format!("ERR unknown command '{0}', with args beginning with: '{0}' ", "x".repeat(128));
    assert_eq!(text(&[&long, &long, b"never"]), expected);
    let expected = format!(
        "ERR unknown command 'f', with args beginning with: '{}' '{}' ",
        "x".repeat(100),
        "x".repeat(25)
    );
    assert_eq!(text(&[b"f", &long[..100], &long]), expected);
}

#[test]
fn unknown_subcommands() {
    let args = ArgsBuf::from_slices(&[b"config", b"nope"]);
    assert_eq!(shown(unknown_subcommand(args.args())), "ERR unknown subcommand 'nope'. Try CONFIG HELP.");
    assert_eq!(
        shown(subcommand_syntax(args.args())),
        "ERR unknown subcommand or wrong number of arguments for 'nope'. Try CONFIG HELP."
    );
}
