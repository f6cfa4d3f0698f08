//! A server that sends what a test prescribes.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use isotherm_resp::reply_parse::{Value, parse_value};

/// To HELLO every server of these tests says that it speaks RESP3.
const HELLO_3: &[u8] = b"%2\r\n$6\r\nserver\r\n$6\r\nvalkey\r\n$7\r\nversion\r\n$5\r\n9.1.2\r\n";

/// The reply to a request; an empty one means that the connection is closed. The number is that of the
/// connection.
type Says = dyn Fn(u64, &[Vec<u8>]) -> Vec<u8> + Send + Sync;

/// Serves as long as the test runs.
pub struct Fake {
    pub port: u16,
}

impl Fake {
    pub fn start(says: impl Fn(u64, &[Vec<u8>]) -> Vec<u8> + Send + Sync + 'static) -> Fake {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let says: Arc<Says> = Arc::new(says);
        std::thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                let says = says.clone();
                std::thread::spawn(move || serve(stream.unwrap(), number as u64, &*says));
            }
        });
        Fake { port }
    }
}

fn serve(mut stream: TcpStream, number: u64, says: &Says) {
    let mut arrived = Vec::new();
    let mut chunk = [0; 4096];
    while let Ok(count @ 1..) = stream.read(&mut chunk) {
        arrived.extend_from_slice(&chunk[..count]);
        // A request looks as a reply does: an array of strings.
        while let Some((request, length)) = parse_value(&arrived).unwrap() {
            arrived.drain(..length);
            let Value::Array(items) = request else { return };
            let args: Vec<Vec<u8>> = items
                .into_iter()
                .map(|item| if let Value::Bulk(bytes) = item { bytes } else { panic!("no string") })
                .collect();
            let said = says(number, &args);
            let reply = if args[0].eq_ignore_ascii_case(b"hello") { HELLO_3.to_vec() } else { said };
            if reply.is_empty() || stream.write_all(&reply).is_err() {
                return;
            }
        }
    }
}
