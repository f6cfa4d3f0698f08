//! A message as it is sent: the same bytes for every receiver, but for the first, which is `*` or `>`.

use isotherm_resp::{Protocol, Reply};

pub struct Frame {
    bytes: Vec<u8>,
}

impl Frame {
    /// Bulk strings, one after another.
    pub fn new(parts: &[&[u8]]) -> Frame {
        let mut reply = Reply::new(Protocol::Resp3);
        reply.push(parts.len());
        parts.iter().for_each(|part| reply.bulk(part));
        Frame { bytes: reply.out }
    }

    /// Returns the bytes on the wire, which are as many in every protocol.
    pub fn wire_bytes(&self) -> usize {
        self.bytes.len()
    }

    pub fn bytes(&mut self, proto: Protocol) -> &[u8] {
        self.bytes[0] = match proto {
            Protocol::Resp2 => b'*',
            Protocol::Resp3 => b'>',
        };
        &self.bytes
    }
}
