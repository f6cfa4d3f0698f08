//! Members and scores as replies.

use crate::element::reply_element;
use isotherm_keyspace::Element;
use isotherm_resp::{Protocol, Reply};

/// The head of a list of members. With scores, RESP2 has one flat list, RESP3 pairs.
pub(super) fn write_members_head(reply: &mut Reply, members: usize, with_scores: bool) {
    let flat = with_scores && reply.proto == Protocol::Resp2;
    reply.array(if flat { members * 2 } else { members });
}

/// Replies a member of a list, with its score if there is one.
#[inline]
pub(super) fn write_scored(reply: &mut Reply, member: Element<'_>, score: Option<f64>) {
    if score.is_some() && reply.proto == Protocol::Resp3 {
        reply.array(2);
    }
    reply_element(reply, member);
    if let Some(score) = score {
        reply.double(score);
    }
}
