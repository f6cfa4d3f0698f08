//! DEBUG PROTOCOL: one example of every kind of reply, for the tests of clients.

use isotherm_resp::Protocol;

use super::super::AdminCall;

pub fn example(call: &mut AdminCall<'_>) {
    let reply = &mut *call.reply;
    let is_resp3 = reply.proto == Protocol::Resp3;
    match call.args.get(2).to_ascii_lowercase().as_slice() {
        b"string" => reply.bulk(b"Hello World"),
        b"integer" => reply.integer(12345),
        // Three digits of pi, as Valkey has them.
        b"double" => reply.double(3141.0 / 1000.0),
        b"bignum" => reply.big_number("1234567999999999999999999999999999999"),
        b"null" => reply.null(),
        b"array" => {
            reply.array(3);
            (0..3).for_each(|number| reply.integer(number));
        }
        b"set" => {
            reply.set(3);
            (0..3).for_each(|number| reply.integer(number));
        }
        b"map" => {
            reply.map(3);
            for number in 0..3 {
                reply.integer(number);
                reply.boolean(number == 1);
            }
        }
        b"attrib" => {
            if is_resp3 {
                reply.attribute(1);
                reply.bulk(b"key-popularity");
                reply.array(2);
                reply.bulk(b"key:123");
                reply.integer(90);
            }
            // Attributes are not replies: one has to follow.
            reply.bulk(b"Some real reply following the attribute");
        }
        b"push" if !is_resp3 => reply.error("ERR RESP2 is not supported by this command"),
        b"push" => {
            // Pushed messages are not replies either, and wait until the reply of the command under way is
            // written.
            reply.bulk(b"Some real reply following the push reply");
            reply.push(2);
            reply.bulk(b"server-cpu-usage");
            reply.integer(42);
        }
        b"true" => reply.boolean(true),
        b"false" => reply.boolean(false),
        b"verbatim" => reply.verbatim("txt", b"This is a verbatim\nstring"),
        _ => reply.error(
            "ERR Wrong protocol type name. Please use one of the following: \
             string|integer|double|bignum|null|array|set|map|attrib|push|verbatim|true|false",
        ),
    }
}
