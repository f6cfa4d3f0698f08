//! Filter of CLIENT LIST and CLIENT KILL: `[NOT-]option value` pairs, all of which must match. If an option
//! is given twice the last one counts; only ids add up.

use isotherm_resp::{Args, errors};
use isotherm_stdx::{UnixMs, parse_i64, steps};

use isotherm_node::session::client::{ClientShared, Names, Seen};
use isotherm_node::session::line::{address_without_port, flags_of};
use std::collections::HashSet;
use std::sync::atomic::Ordering;

/// The characters that CLIENT LIST may show.
const FLAG_CHARACTERS: &[u8] = b"OSMPxbtRBdcuAUreTIiEN";
const CAPA_CHARACTERS: &[u8] = b"r";

/// Databases and users that exist, which options may name.
pub struct Known<'k> {
    pub databases: u16,
    pub has_user: &'k dyn Fn(&[u8]) -> bool,
}

impl Known<'_> {
    fn has_user(&self, name: &[u8]) -> bool {
        (self.has_user)(name)
    }
}

#[derive(Default, Debug)]
pub struct Filter<'a> {
    wanted: Traits<'a>,
    unwanted: Traits<'a>,
    max_age_seconds: Option<i64>,
    idle_seconds: Option<i64>,
    skip_me: bool,
}

/// Values to compare a client with, one for each trait that was named; `None` for a trait that was not.
#[derive(Default, Debug)]
struct Traits<'a> {
    /// Ids of clients, up to as many as a request has arguments. A set, so that each client costs one look-up
    /// instead of a comparison with every id.
    ids: Option<HashSet<u64>>,
    addr: Option<&'a [u8]>,
    laddr: Option<&'a [u8]>,
    kind: Option<Kind>,
    user: Option<&'a [u8]>,
    flags: Option<&'a [u8]>,
    name: Option<&'a [u8]>,
    lib_name: Option<&'a [u8]>,
    lib_ver: Option<&'a [u8]>,
    db: Option<u16>,
    capa: Option<&'a [u8]>,
    ip: Option<&'a [u8]>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Normal,
    Replica,
    PubSub,
    Primary,
}

impl<'a> Filter<'a> {
    pub fn of_address(addr: &'a [u8]) -> Filter<'a> {
        Filter { wanted: Traits { addr: Some(addr), ..Traits::default() }, ..Filter::default() }
    }

    /// `options` after the subcommand. An error is Valkey's text.
    pub fn read(options: Args<'a>, known: &Known<'_>, skip_me: bool) -> Result<Filter<'a>, Vec<u8>> {
        let mut filter = Filter { skip_me, ..Filter::default() };
        let mut at = 0;
        while at < options.len() {
            at += filter.read_option(options.from(at), known)?;
        }
        Ok(filter)
    }

    /// Reads one option; returns how many arguments it took.
    fn read_option(&mut self, args: Args<'a>, known: &Known<'_>) -> Result<usize, Vec<u8>> {
        let word = args.get(0).to_ascii_lowercase();
        let (negated, option) = match word.strip_prefix(b"not-") {
            Some(option) => (true, option),
            None => (false, &word[..]),
        };
        if option == b"id" {
            return self.traits(negated).read_ids(args.from(1)).map(|count| 1 + count);
        }
        let value = args.try_get(1).ok_or(errors::SYNTAX)?;
        match option {
            b"maxage" if !negated => self.max_age_seconds = Some(positive(value, "maxage")?),
            b"idle" if !negated => self.idle_seconds = Some(positive(value, "idle")?),
            b"skipme" if !negated && value.eq_ignore_ascii_case(b"yes") => self.skip_me = true,
            b"skipme" if !negated && value.eq_ignore_ascii_case(b"no") => self.skip_me = false,
            _ => self.traits(negated).read_option(option, value, negated, known)?,
        }
        Ok(2)
    }

    fn traits(&mut self, negated: bool) -> &mut Traits<'a> {
        if negated { &mut self.unwanted } else { &mut self.wanted }
    }

    pub fn matches(&self, client: &ClientShared, me: u64, now: UnixMs) -> bool {
        !(self.skip_me && client.id == me)
            && self.max_age_seconds.is_none_or(|age| client.age_seconds(now) >= age)
            && self.idle_seconds.is_none_or(|least| client.seen.idle_seconds(now) >= least)
            && self.wanted.each(client).all(|fits| fits)
            && !self.unwanted.each(client).any(|fits| fits)
    }
}

impl<'a> Traits<'a> {
    /// All numbers up to the next word.
    fn read_ids(&mut self, args: Args<'a>) -> Result<usize, Vec<u8>> {
        let ids = self.ids.get_or_insert_default();
        let mut count = 0;
        for id in args.iter().map_while(parse_i64) {
            steps::note(1);
            match u64::try_from(id) {
                Ok(id @ 1..) => drop(ids.insert(id)),
                _ => return Err(b"ERR client-id should be greater than 0".into()),
            }
            count += 1;
        }
        Ok(count)
    }

    fn read_option(
        &mut self,
        option: &[u8],
        value: &'a [u8],
        negated: bool,
        known: &Known<'_>,
    ) -> Result<(), Vec<u8>> {
        let unknown = |what: &str, upper: &str| {
            let place = if negated { format!("the NOT-{upper}") } else { "the provided".into() };
            errors::with_bytes(&format!("ERR Unknown {what} found in {place} filter: "), value, "")
        };
        match option {
            b"addr" => self.addr = Some(value),
            b"laddr" => self.laddr = Some(value),
            b"name" => self.name = Some(value),
            b"lib-name" => self.lib_name = Some(value),
            b"lib-ver" => self.lib_ver = Some(value),
            b"ip" => self.ip = Some(value),
            b"type" => self.kind = Some(Kind::named(value)?),
            b"user" if known.has_user(value) => self.user = Some(value),
            b"user" => return Err(errors::with_bytes("ERR No such user '", value, "'")),
            b"db" => self.db = Some(database(value, if negated { "NOT-DB" } else { "DB" }, known.databases)?),
            b"flags" if !only(value, FLAG_CHARACTERS) => return Err(unknown("flags", "FLAGS")),
            b"flags" => self.flags = Some(value),
            b"capa" if !only(value, CAPA_CHARACTERS) => return Err(unknown("capa", "CAPA")),
            b"capa" => self.capa = Some(value),
            _ => return Err(errors::SYNTAX.into()),
        }
        Ok(())
    }

    /// Returns, for each trait that was asked for, whether the client has it. Traits that were not asked for
    /// are not looked up.
    fn each(&self, client: &ClientShared) -> impl Iterator<Item = bool> {
        steps::note(1);
        let seen = &client.seen;
        let asks_names = self.name.or(self.lib_name).or(self.lib_ver).is_some();
        let names = if asks_names { client.names().clone() } else { Names::default() };
        let flags = self.flags.map(|_| flags_of(client)).unwrap_or_default();
        let is_named =
            |asked: Option<&[u8]>, own: &str| asked.map(|asked| !own.is_empty() && own.as_bytes() == asked);
        let has_characters = |asked: Option<&[u8]>, own: &str| asked.map(|asked| only(asked, own.as_bytes()));
        let redirects = seen.marks.load(Ordering::Relaxed) & Seen::REDIRECTS != 0;
        let traits = [
            self.ids.as_ref().map(|ids| ids.contains(&client.id)),
            self.addr.map(|addr| client.addr.as_bytes() == addr),
            self.laddr.map(|laddr| client.laddr.as_bytes() == laddr),
            self.kind.map(|kind| kind == Kind::of(client)),
            self.user.map(|asked| client.names().user.as_ref().is_some_and(|user| *user.name == *asked)),
            has_characters(self.flags, &flags),
            is_named(self.name, &names.name),
            is_named(self.lib_name, &names.lib_name),
            is_named(self.lib_ver, &names.lib_ver),
            self.db.map(|db| seen.db.load(Ordering::Relaxed) == db),
            has_characters(self.capa, if redirects { "r" } else { "" }),
            self.ip.map(|ip| address_without_port(&client.addr).is_some_and(|own| own.as_bytes() == ip)),
        ];
        traits.into_iter().flatten()
    }
}

impl Kind {
    fn of(client: &ClientShared) -> Kind {
        match () {
            () if client.is_primary() => Kind::Primary,
            () if client.is_replica() => Kind::Replica,
            () if client.listening.any() => Kind::PubSub,
            () => Kind::Normal,
        }
    }

    fn named(word: &[u8]) -> Result<Kind, Vec<u8>> {
        match word.to_ascii_lowercase().as_slice() {
            b"normal" => Ok(Kind::Normal),
            b"slave" | b"replica" => Ok(Kind::Replica),
            b"pubsub" => Ok(Kind::PubSub),
            b"master" | b"primary" => Ok(Kind::Primary),
            _ => Err(errors::with_bytes("ERR Unknown client type '", word, "'")),
        }
    }
}

fn positive(value: &[u8], option: &str) -> Result<i64, Vec<u8>> {
    match parse_i64(value) {
        Some(seconds @ 1..) => Ok(seconds),
        Some(_) => Err(format!("ERR {option} should be greater than 0").into_bytes()),
        None => Err(format!("ERR {option} is not an integer or out of range").into_bytes()),
    }
}

fn database(value: &[u8], option: &str, databases: u16) -> Result<u16, Vec<u8>> {
    match parse_i64(value).filter(|number| i32::try_from(*number).is_ok()) {
        None => Err(format!("ERR {option} is not an integer or out of range").into_bytes()),
        Some(number) => u16::try_from(number).ok().filter(|number| *number < databases).ok_or_else(|| {
            format!("ERR {option} number should be between 0 and {}", databases - 1).into_bytes()
        }),
    }
}

/// Returns whether every character of `characters` is one of `allowed`.
fn only(characters: &[u8], allowed: &[u8]) -> bool {
    characters.iter().all(|character| allowed.contains(character))
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_acl::{CommandTable, User};
    use isotherm_node::session::Transport;
    use isotherm_resp::ArgsBuf;

    const NOW: UnixMs = UnixMs(1_000_000);

    fn client() -> ClientShared {
        let made = UnixMs(NOW.0 - 10_000);
        let client = ClientShared::new(
            7,
            0,
            9,
            ("127.0.0.1:4711".into(), "127.0.0.1:6379".into()),
            Transport::Tcp,
            true,
            made,
        );
        let user = User::all_powerful(b"default", &CommandTable::new(Vec::new(), &[]));
        *client.names() = Names { user: Some(user.into()), name: "ann".into(), ..Names::default() };
        client.seen.db.store(3, Ordering::Relaxed);
        client.seen.note_interaction(UnixMs(NOW.0 - 4_000));
        client.seen.marks.store(Seen::NO_TOUCH | Seen::REDIRECTS, Ordering::Relaxed);
        client
    }

    fn matches(words: &str) -> Result<bool, String> {
        let owned: ArgsBuf = words.split(' ').map(str::as_bytes).collect();
        let filter =
            Filter::read(owned.args(), &Known { databases: 16, has_user: &|name| name == b"default" }, false)
                .map_err(|text| String::from_utf8(text).expect("text"))?;
        Ok(filter.matches(&client(), 7, NOW))
    }

    #[track_caller]
    fn check(words: &str, expected: bool) {
        assert_eq!(matches(words), Ok(expected), "{words}");
    }

    #[test]
    fn traits_fit_or_not() {
        for (fits, does_not) in [
            ("id 6 7 8", "id 6 8"),
            ("addr 127.0.0.1:4711", "addr 127.0.0.1:4712"),
            ("laddr 127.0.0.1:6379", "laddr x"),
            ("ip 127.0.0.1", "ip 127.0.0.2"),
            ("TYPE normal", "type pubsub"),
            ("name ann", "name bob"),
            ("db 3", "db 0"),
            ("flags T", "flags TU"),
            ("capa r", "lib-name ann"),
            ("maxage 10", "maxage 11"),
            ("idle 4", "idle 5"),
            ("skipme no", "skipme yes"),
        ] {
            check(fits, true);
            check(does_not, false);
            let can_be_negated = !["maxage", "idle", "skipme"].iter().any(|word| fits.starts_with(word));
            if can_be_negated {
                check(&format!("not-{fits}"), false);
                check(&format!("NOT-{does_not}"), true);
            }
        }
        check("name ann db 3 not-id 8", true);
        check("name ann db 4", false);
        check("user default", true);
        check("not-user default", false);
        check("name bob name ann", true);
        check("id 1 id 7", true);
        check("id", false);
        check("lib-ver ", false);
    }

    #[test]
    fn wrong_options() {
        let refused = |words: &str, text: &str| assert_eq!(matches(words), Err(text.into()), "{words}");
        refused("foo bar", errors::SYNTAX);
        refused("name", errors::SYNTAX);
        refused("not-skipme yes", errors::SYNTAX);
        refused("skipme maybe", errors::SYNTAX);
        refused("id 0", "ERR client-id should be greater than 0");
        refused("id 1 x", errors::SYNTAX);
        refused("maxage 0", "ERR maxage should be greater than 0");
        refused("idle x", "ERR idle is not an integer or out of range");
        refused("type monkey", "ERR Unknown client type 'monkey'");
        refused("user ann", "ERR No such user 'ann'");
        refused("db 16", "ERR DB number should be between 0 and 15");
        refused("not-db -1", "ERR NOT-DB number should be between 0 and 15");
        refused("db x", "ERR DB is not an integer or out of range");
        refused("flags Q", "ERR Unknown flags found in the provided filter: Q");
        refused("not-flags Q", "ERR Unknown flags found in the NOT-FLAGS filter: Q");
        refused("capa x", "ERR Unknown capa found in the provided filter: x");
    }

    #[test]
    fn addresses() {
        assert_eq!(address_without_port("[::1]:6379"), Some("::1"));
        assert_eq!(address_without_port("1.2.3.4:1"), Some("1.2.3.4"));
        assert_eq!(address_without_port("/run/socket:0"), None);
    }
}
