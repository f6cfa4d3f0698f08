//! CLIENT TRACKING and what belongs to it.

use isotherm_commands::Outcome;
use isotherm_commands::spec::*;
use isotherm_resp::{Args, errors};
use isotherm_stdx::{parse_i64, steps};

use crate::admin::AdminCall;
use isotherm_node::Node;
use isotherm_node::effects::tracking::{Mode, Tracking};

/// Options after ON or OFF.
#[derive(Default)]
struct Options<'a> {
    redirect: u64,
    broadcast: bool,
    opt_in: bool,
    opt_out: bool,
    noloop: bool,
    prefixes: Vec<&'a [u8]>,
}

pub const CLIENT_TRACKING: Spec = Spec {
    name: "tracking",
    summary: "Turns invalidation messages for cached keys on or off.",
    since: "6.0.0",
    group: Group::Connection,
    complexity: "O(1); more with PREFIX, which is compared with the other prefixes",
    arity: -3,
    flags: Flags::NOSCRIPT.or(Flags::LOADING).or(Flags::STALE),
    acl: AclCategories::CONNECTION,
    arguments: &[
        Argument::one_of("status", &[Argument::pure_token("on", "ON"), Argument::pure_token("off", "OFF")]),
        Argument::integer("client-id").token("REDIRECT").optional(),
        Argument::string("prefix").token("PREFIX").optional().multiple_token(),
        Argument::pure_token("bcast", "BCAST").optional(),
        Argument::pure_token("optin", "OPTIN").optional(),
        Argument::pure_token("optout", "OPTOUT").optional(),
        Argument::pure_token("noloop", "NOLOOP").optional(),
    ],
    reach: Reach::Each,
    ..Spec::BASE
};

pub fn tracking(call: &mut AdminCall<'_>) -> Outcome {
    match change(call) {
        Ok(()) => call.reply.ok(),
        Err(text) => call.reply.error(text),
    }
    Outcome::Done
}

fn change(call: &mut AdminCall<'_>) -> Result<(), Vec<u8>> {
    let options = Options::read(call.args.from(3), call.node)?;
    let word = call.args.get(2);
    if word.eq_ignore_ascii_case(b"off") {
        call.session.stop_tracking(call.node, &mut call.exec.held, call.audience);
        return Ok(());
    }
    if !word.eq_ignore_ascii_case(b"on") {
        return Err(errors::SYNTAX.into());
    }
    let wanted = options.check(call.session.tracking())?;
    call.session.track(call.node, &mut call.exec.held, call.audience, wanted);
    Ok(())
}

impl<'a> Options<'a> {
    fn read(args: Args<'a>, node: &Node) -> Result<Options<'a>, Vec<u8>> {
        let mut options = Options::default();
        let mut at = 0;
        while at < args.len() {
            let value = args.try_get(at + 1);
            match (args.get(at).to_ascii_lowercase().as_slice(), value) {
                (b"redirect", Some(id)) => {
                    options.read_redirect(id, node)?;
                    at += 1;
                }
                (b"prefix", Some(prefix)) => {
                    options.prefixes.push(prefix);
                    at += 1;
                }
                (b"bcast", _) => options.broadcast = true,
                (b"optin", _) => options.opt_in = true,
                (b"optout", _) => options.opt_out = true,
                (b"noloop", _) => options.noloop = true,
                _ => return Err(errors::SYNTAX.into()),
            }
            at += 1;
        }
        Ok(options)
    }

    fn read_redirect(&mut self, id: &[u8], node: &Node) -> Result<(), Vec<u8>> {
        if self.redirect != 0 {
            return Err(b"ERR A client can only redirect to a single other client".into());
        }
        let id = parse_i64(id).ok_or(errors::NOT_AN_INTEGER)?;
        let client = u64::try_from(id).ok().and_then(|id| node.clients.get(id));
        self.redirect = client.ok_or(&b"ERR The client ID you want redirect to does not exist"[..])?.id;
        Ok(())
    }

    /// Returns how the session will track keys; `before` is how it has tracked them so far. An error is
    /// Valkey's text.
    fn check(&self, before: Option<&Tracking>) -> Result<Tracking, Vec<u8>> {
        let mode_before = before.map(|before| before.mode);
        let was_broadcast = mode_before.map(|mode| mode == Mode::Broadcast);
        let refuse = |when: bool, text: &str| if when { Err(text.as_bytes().to_vec()) } else { Ok(()) };
        refuse(
            !self.broadcast && !self.prefixes.is_empty(),
            "ERR PREFIX option requires BCAST mode to be enabled",
        )?;
        refuse(
            was_broadcast.is_some_and(|was| was != self.broadcast),
            "ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then re-enabling \
             it with a different mode.",
        )?;
        refuse(
            self.broadcast && (self.opt_in || self.opt_out),
            "ERR OPTIN and OPTOUT are not compatible with BCAST",
        )?;
        refuse(self.opt_in && self.opt_out, "ERR You can't specify both OPTIN mode and OPTOUT mode")?;
        refuse(
            self.opt_in && mode_before == Some(Mode::OptOut)
                || self.opt_out && mode_before == Some(Mode::OptIn),
            "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then re-enabling \
             it with a different mode.",
        )?;
        self.check_prefixes(before)?;
        let mode = match () {
            _ if self.broadcast => Mode::Broadcast,
            _ if self.opt_in => Mode::OptIn,
            _ if self.opt_out => Mode::OptOut,
            _ => Mode::Reads,
        };
        let mut prefixes: std::collections::BTreeSet<Box<[u8]>> =
            self.prefixes.iter().map(|prefix| Box::from(*prefix)).collect();
        if self.broadcast && prefixes.is_empty() {
            // Every key.
            prefixes.insert(Box::default());
        }
        let caching = before.is_some_and(|before| before.caching);
        Ok(Tracking {
            mode,
            noloop: self.noloop,
            redirect: self.redirect,
            is_broken: false,
            caching,
            prefixes,
        })
    }

    /// No key has two of a session's prefixes.
    fn check_prefixes(&self, before: Option<&Tracking>) -> Result<(), Vec<u8>> {
        let overlap = |a: &[u8], b: &[u8]| a.starts_with(b) || b.starts_with(a);
        let error = |prefix: &[u8], with: &str, other: &[u8]| {
            let start = errors::with_bytes("ERR Prefix '", prefix, "' overlaps with ");
            let end = errors::with_bytes(with, other, "'. Prefixes for a single client must not overlap.");
            [start, end].concat()
        };
        let existing = || before.iter().flat_map(|before| &before.prefixes).map(|prefix| &**prefix);
        let Some(at) = first_overlapping(existing(), &self.prefixes) else { return Ok(()) };
        let prefix = self.prefixes[at];
        if let Some(other) = existing().find(|other| overlap(other, prefix)) {
            return Err(error(prefix, "an existing prefix '", other));
        }
        let mut behind = self.prefixes[at + 1..].iter();
        let other =
            behind.find(|other| overlap(other, prefix)).expect("those in front of it overlap nothing");
        Err(error(prefix, "another provided prefix '", other))
    }
}

/// The first of `prefixes` that begins with another one, or with which another one begins, those of
/// `existing` included. In order, whatever begins with a prefix follows it: so each is compared with the one
/// that it may lie in, not with all.
fn first_overlapping<'a>(existing: impl Iterator<Item = &'a [u8]>, prefixes: &[&'a [u8]]) -> Option<usize> {
    let given = prefixes.iter().enumerate().map(|(at, prefix)| (*prefix, Some(at)));
    let mut all: Vec<(&[u8], Option<usize>)> = existing.map(|prefix| (prefix, None)).chain(given).collect();
    all.sort_unstable();
    let mut first: Option<usize> = None;
    // Those that the one in hand begins with, the longest last.
    let mut around: Vec<(&[u8], Option<usize>)> = Vec::new();
    for (prefix, at) in all {
        steps::note(1);
        while around.pop_if(|(outer, _)| !prefix.starts_with(outer)).is_some() {}
        if let Some((_, outer)) = around.last() {
            first = first.into_iter().chain(*outer).chain(at).min();
        }
        around.push((prefix, at));
    }
    first
}

pub const CLIENT_CACHING: Spec = Spec {
    name: "caching",
    summary: "Says whether the keys of the next command are tracked, in the modes OPTIN and OPTOUT.",
    since: "6.0.0",
    group: Group::Connection,
    complexity: "O(1)",
    arity: 3,
    flags: Flags::ALLOW_BUSY.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE),
    acl: AclCategories::CONNECTION,
    arguments: &[Argument::one_of(
        "mode",
        &[Argument::pure_token("yes", "YES"), Argument::pure_token("no", "NO")],
    )],
    ..Spec::BASE
};

pub fn caching(call: &mut AdminCall<'_>) -> Outcome {
    let Some(tracking) = call.session.listening.as_mut().and_then(|listening| listening.tracking.as_mut())
    else {
        call.reply.error(
            "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode \
             enabled",
        );
        return Outcome::Done;
    };
    let (yes, no) =
        (call.args.get(2).eq_ignore_ascii_case(b"yes"), call.args.get(2).eq_ignore_ascii_case(b"no"));
    match tracking.mode {
        Mode::OptIn if yes => tracking.caching = true,
        Mode::OptOut if no => tracking.caching = true,
        _ if yes => {
            call.reply.error("ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.");
            return Outcome::Done;
        }
        _ if no => {
            call.reply.error("ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.");
            return Outcome::Done;
        }
        _ => {
            call.reply.error(errors::SYNTAX);
            return Outcome::Done;
        }
    }
    call.reply.ok();
    Outcome::Done
}

pub const CLIENT_GETREDIR: Spec = Spec {
    name: "getredir",
    summary: "Returns the ID of the connection that invalidations go to; 0 for this one, -1 without tracking.",
    since: "6.0.0",
    group: Group::Connection,
    complexity: "O(1)",
    arity: 2,
    flags: Flags::ALLOW_BUSY.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE),
    acl: AclCategories::CONNECTION,
    ..Spec::BASE
};

pub fn get_redir(call: &mut AdminCall<'_>) -> Outcome {
    let redirect = call.session.tracking().map_or(-1, |tracking| tracking.redirect as i64);
    call.reply.integer(redirect);
    Outcome::Done
}

pub const CLIENT_TRACKINGINFO: Spec = Spec {
    name: "trackinginfo",
    summary: "Returns how tracking is set for this connection.",
    since: "6.2.0",
    group: Group::Connection,
    complexity: "O(1)",
    arity: 2,
    flags: Flags::NOSCRIPT.or(Flags::LOADING).or(Flags::STALE),
    acl: AclCategories::CONNECTION,
    ..Spec::BASE
};

pub fn tracking_info(call: &mut AdminCall<'_>) -> Outcome {
    let tracking = call.session.tracking();
    let is = |of: fn(&Tracking) -> bool| tracking.is_some_and(of);
    let flags = [
        ("on", tracking.is_some()),
        ("off", tracking.is_none()),
        ("bcast", is(|tracking| tracking.mode == Mode::Broadcast)),
        ("optin", is(|tracking| tracking.mode == Mode::OptIn)),
        ("caching-yes", is(|tracking| tracking.mode == Mode::OptIn && tracking.caching)),
        ("optout", is(|tracking| tracking.mode == Mode::OptOut)),
        ("caching-no", is(|tracking| tracking.mode == Mode::OptOut && tracking.caching)),
        ("noloop", is(|tracking| tracking.noloop)),
        ("broken_redirect", is(|tracking| tracking.is_broken)),
    ];
    let reply = &mut *call.reply;
    reply.map(3);
    reply.bulk(b"flags");
    reply.set(flags.iter().filter(|(_, is)| *is).count());
    flags.iter().filter(|(_, is)| *is).for_each(|(flag, _)| reply.bulk(flag.as_bytes()));
    reply.bulk(b"redirect");
    reply.integer(tracking.map_or(-1, |tracking| tracking.redirect as i64));
    reply.bulk(b"prefixes");
    let prefixes = tracking.iter().flat_map(|tracking| &tracking.prefixes);
    reply.array(prefixes.clone().count());
    prefixes.for_each(|prefix| reply.bulk(prefix));
    Outcome::Done
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_stdx::Prng;

    /// Finds an overlap by the definition: each prefix is compared with all others.
    fn simply(existing: &[&[u8]], prefixes: &[&[u8]]) -> Option<usize> {
        let overlap = |a: &[u8], b: &[u8]| a.starts_with(b) || b.starts_with(a);
        (0..prefixes.len()).find(|&at| {
            let others =
                prefixes.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, other)| other);
            existing.iter().chain(others).any(|other| overlap(other, prefixes[at]))
        })
    }

    #[test]
    fn overlaps_are_found_without_comparing_all() {
        let mut prng = Prng::new(5);
        let mut found = 0;
        for _ in 0..2000 {
            let mut words = |most: u64| -> Vec<Vec<u8>> {
                let count = prng.below(most);
                (0..count).map(|_| (0..1 + prng.below(6)).map(|_| *prng.pick(b"abc")).collect()).collect()
            };
            // Those that a session has do not overlap.
            let (mut had, given) = (words(4), words(6));
            had.truncate(1);
            let had: Vec<&[u8]> = had.iter().map(Vec::as_slice).collect();
            let given: Vec<&[u8]> = given.iter().map(Vec::as_slice).collect();
            let expected = simply(&had, &given);
            assert_eq!(first_overlapping(had.iter().copied(), &given), expected, "{had:?} {given:?}");
            found += usize::from(expected.is_some());
        }
        assert!((200..1800).contains(&found), "{found}");
    }
}
