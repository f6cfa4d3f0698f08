//! Replies that show the topology, ready-made: the same bytes for all clients that ask in the same way, until
//! what they show has changed.
//!
//! ```text
//!   topology 7   SLOTS  [made, asked for]        SHARDS [made]       NODES [made]
//!      |                  | a slot has moved           | so it has       |
//!   topology 8   SLOTS  [made by who publishes]  SHARDS [ ]          NODES [ ]        made by the first who asks
//!      |                  | nothing is shown of        |                 | it shows the times of pings
//!   topology 9   SLOTS  [the same one]           SHARDS [the same]   NODES [ ]
//! ```
//! The replies stand next to the topology that they show, so a thread that has compared a generation needs no
//! lock, and no reply is older than the topology that MOVED is taken from. A reply that no client asks for is
//! not made.

use isotherm_cluster::topology::Topology;
use isotherm_cluster::topology::ready::{self, SlotTexts, Slots};
use isotherm_cluster::topology::replies::{Asker, Endpoint};
use isotherm_resp::{Protocol, SharedAccount, SharedBytes};
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Slots,
    Shards,
    Nodes,
}

/// A topology, and what clients are shown of it.
pub struct Published {
    topology: Arc<Topology>,
    texts: OnceLock<Arc<SlotTexts>>,
    /// Texts of an earlier topology.
    texts_before: Option<Arc<SlotTexts>>,
    slots: [SlotsForm; FORMS],
    shards: [OnceLock<Parts>; FORMS],
    nodes: [OnceLock<Parts>; FORMS],
    /// Memory that the parts take.
    pub account: SharedAccount,
}

type Parts = Arc<[Arc<SharedBytes>]>;

#[derive(Default)]
struct SlotsForm {
    made: OnceLock<Arc<MadeSlots>>,
    /// Slots of an earlier topology, which shows something else.
    before: Option<Arc<MadeSlots>>,
}

struct MadeSlots {
    slots: Slots,
    /// A client was sent it.
    is_asked: AtomicBool,
}

/// Each way of asking: 3 endpoints, TLS or not, IPv6 or not, 2 protocols.
const FORMS: usize = 24;

fn form(asker: Asker, proto: Protocol) -> usize {
    let endpoint = match asker.endpoint {
        Endpoint::Ip => 0,
        Endpoint::Hostname => 1,
        Endpoint::Unknown => 2,
    };
    let flags = [asker.is_tls, asker.is_ipv6, proto == Protocol::Resp3];
    flags.iter().fold(endpoint, |form, flag| 2 * form + usize::from(*flag))
}

impl Deref for Published {
    type Target = Topology;

    fn deref(&self) -> &Topology {
        &self.topology
    }
}

impl Published {
    pub fn first(topology: Arc<Topology>) -> Published {
        Published {
            topology,
            texts: OnceLock::new(),
            texts_before: None,
            slots: Default::default(),
            shards: Default::default(),
            nodes: Default::default(),
            account: SharedAccount::default(),
        }
    }

    /// Makes the one after this one, with all of its replies that show the same. CLUSTER SLOTS is made anew
    /// if a client has asked for it since it was made: then some will do so again, all at once.
    pub fn next(&self, topology: Arc<Topology>) -> Published {
        let mut next = Published {
            texts_before: self.texts.get().or(self.texts_before.as_ref()).cloned(),
            account: self.account.clone(),
            ..Published::first(topology)
        };
        if self.slots.iter().any(SlotsForm::is_made) {
            next.take_slots(self);
        }
        if self.shards.iter().any(|form| form.get().is_some())
            && ready::show_the_same_shards(&self.topology, &next.topology)
        {
            next.shards = self.shards.clone();
        }
        next
    }

    fn take_slots(&mut self, earlier: &Published) {
        let is_same = ready::show_the_same_slots(&earlier.topology, &self.topology);
        for (form, earlier) in self.slots.iter_mut().zip(&earlier.slots) {
            match earlier.made.get() {
                Some(made) if is_same => form.made = Arc::clone(made).into(),
                Some(made) => form.before = Some(Arc::clone(made)),
                None => form.before = earlier.before.clone(),
            }
        }
        for (asker, proto) in all_forms() {
            let form = &self.slots[form(asker, proto)];
            let was_asked = |made: &Arc<MadeSlots>| made.is_asked.load(Relaxed);
            if form.made.get().is_none() && form.before.as_ref().is_some_and(was_asked) {
                self.made_slots(asker, proto);
            }
        }
    }

    fn made_slots(&self, asker: Asker, proto: Protocol) -> &MadeSlots {
        let form = &self.slots[form(asker, proto)];
        form.made.get_or_init(|| {
            let before = form.before.as_ref().map(|before| &before.slots);
            let slots = Slots::new(&self.topology, asker, proto, before, &self.account);
            Arc::new(MadeSlots { slots, is_asked: AtomicBool::new(false) })
        })
    }

    /// The reply in the protocol.
    pub fn reply(&self, kind: Kind, asker: Asker, proto: Protocol) -> &[Arc<SharedBytes>] {
        let (topology, account) = (&self.topology, &self.account);
        match kind {
            Kind::Slots => {
                let made = self.made_slots(asker, proto);
                if !made.is_asked.load(Relaxed) {
                    made.is_asked.store(true, Relaxed);
                }
                made.slots.parts()
            }
            // Both ports are shown to all.
            Kind::Shards => {
                let asker = Asker { is_tls: false, ..asker };
                let make = || ready::shards(topology, self.texts(), asker, proto, account).into();
                self.shards[form(asker, proto)].get_or_init(make)
            }
            Kind::Nodes => {
                let asker = Asker { endpoint: Endpoint::Ip, ..asker };
                let make = || ready::nodes(topology, self.texts(), asker, proto, account).into();
                self.nodes[form(asker, proto)].get_or_init(make)
            }
        }
    }

    fn texts(&self) -> &SlotTexts {
        let make = || Arc::new(SlotTexts::new(&self.topology, self.texts_before.as_deref()));
        self.texts.get_or_init(make)
    }
}

impl SlotsForm {
    /// Returns whether the slots were made for this topology or an earlier one.
    fn is_made(&self) -> bool {
        self.made.get().is_some() || self.before.is_some()
    }
}

fn all_forms() -> impl Iterator<Item = (Asker, Protocol)> {
    let endpoints = [Endpoint::Ip, Endpoint::Hostname, Endpoint::Unknown].into_iter();
    let ways = [(false, false), (false, true), (true, false), (true, true)];
    let askers =
        endpoints.flat_map(move |endpoint| ways.map(|(is_tls, is_ipv6)| Asker { is_ipv6, is_tls, endpoint }));
    askers.flat_map(|asker| [(asker, Protocol::Resp2), (asker, Protocol::Resp3)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_has_a_place() {
        let mut places: Vec<usize> = all_forms().map(|(asker, proto)| form(asker, proto)).collect();
        places.sort_unstable();
        assert!(places.into_iter().eq(0..FORMS));
    }
}
