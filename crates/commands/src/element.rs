//! Elements of collections in replies.

use isotherm_keyspace::Element;
use isotherm_resp::Reply;

/// A bulk string, whatever the element is stored as.
#[inline]
pub(crate) fn reply_element(reply: &mut Reply, element: Element<'_>) {
    match element {
        Element::Int(int) => reply.bulk_i64(int),
        Element::Bytes(bytes) => reply.bulk(bytes),
    }
}
