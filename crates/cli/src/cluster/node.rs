//! A node as CLUSTER NODES describes it.
//!
//! ```text
//! <id> <ip>:<port>@<bus port>[,<hostname>[,..]] <flags> <primary id or -> <ping> <pong> <epoch> <link> <slot> ..
//!   a slot: 7, 0-5460, [93->-<id>] (leaves for that node), [93-<-<id>] (comes from it); the last two of the node itself only
//! ```

use isotherm_stdx::Slot;

use super::slots::SlotSet;

/// Maximum number of open slots that a node lists: each slot twice, once in each direction.
const OPEN_MAX: usize = 2 * Slot::COUNT;
/// valkey-cli takes a bus port that is not known to be so much above the port of clients.
pub const BUS_PORT_ABOVE: u16 = 10000;

#[derive(Clone, Default, PartialEq, Debug)]
pub struct Node {
    pub id: String,
    pub host: String,
    pub port: u16,
    pub bus_port: u16,
    pub flags: Vec<String>,
    pub primary: Option<String>,
    pub epoch: u64,
    pub slots: SlotSet,
    /// Slots that leave, and the node that each goes to.
    pub migrating: Vec<(u16, String)>,
    /// Slots that arrive, and the node that each comes from.
    pub importing: Vec<(u16, String)>,
    /// Number of nodes that replicate this one.
    pub replicas: usize,
}

/// A line, with what it says of the node that said it.
#[derive(Clone, Debug)]
pub struct Line {
    pub node: Node,
    pub linked: bool,
}

impl Line {
    pub fn is_myself(&self) -> bool {
        self.node.has_flag("myself")
    }
}

impl Node {
    pub fn at(host: &str, port: u16) -> Node {
        let bus_port = port.saturating_add(BUS_PORT_ABOVE);
        Node { host: host.to_string(), port, bus_port, ..Node::default() }
    }

    pub fn address(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    pub fn has_flag(&self, flag: &str) -> bool {
        self.flags.iter().any(|own| own == flag)
    }

    pub fn is_replica(&self) -> bool {
        self.has_flag("slave") || self.has_flag("replica")
    }

    /// A primary that is to get or give slots.
    pub fn is_primary(&self) -> bool {
        !self.is_replica() && self.primary.is_none()
    }

    pub fn short_id(&self) -> &str {
        self.id.get(..8).unwrap_or(&self.id)
    }

    pub fn flag_text(&self) -> String {
        let shown = self.flags.iter().filter(|flag| *flag != "myself");
        shown.cloned().collect::<Vec<_>>().join(",")
    }

    /// Describes the node as valkey-cli does: `M: <id> <address>`, its slots, and its primary or the number
    /// of its replicas.
    pub fn describe(&self, indent: usize) -> String {
        let spaces = " ".repeat(indent);
        let role = if self.is_replica() { 'S' } else { 'M' };
        let slots = self.slots.in_brackets();
        let count = self.slots.len();
        let mut text = format!(
            "{spaces}{role}: {} {}\n{spaces}   slots:{slots} ({count} slots) {}",
            self.id,
            self.address(),
            self.flag_text()
        );
        match &self.primary {
            Some(primary) => text += &format!("\n{spaces}   replicates {primary}"),
            None if self.replicas > 0 => {
                text += &format!("\n{spaces}   {} additional replica(s)", self.replicas);
            }
            None => {}
        }
        text
    }
}

/// All lines; what is wrong with the first bad one otherwise.
pub fn parse(text: &str) -> Result<Vec<Line>, String> {
    text.lines().filter(|line| !line.is_empty()).map(parse_line).collect()
}

fn parse_line(line: &str) -> Result<Line, String> {
    let bad = || "Error: invalid CLUSTER NODES reply".to_string();
    let mut words = line.split(' ');
    let mut word = || words.next().ok_or_else(bad);
    let id = word()?.to_string();
    let (host, port, bus_port) = split_address(word()?).ok_or_else(bad)?;
    let flags: Vec<String> = word()?.split(',').map(str::to_string).collect();
    let primary = word()?;
    let (_ping, _pong) = (word()?, word()?);
    let epoch = word()?.parse().unwrap_or(0);
    let linked = word()? == "connected";
    let mut node = Node { id, host, port, bus_port, flags, epoch, ..Node::default() };
    if node.is_replica() && primary != "-" {
        node.primary = Some(primary.to_string());
    }
    for slot in words.filter(|slot| !slot.is_empty()) {
        add_slot(&mut node, slot).ok_or_else(bad)?;
    }
    Ok(Line { node, linked })
}

/// Takes `host:port@bus,hostname`, with or without what follows the port.
pub fn split_address(text: &str) -> Option<(String, u16, u16)> {
    let (place, bus) = match text.split_once('@') {
        Some((place, rest)) => (place, rest.split(',').next()?.parse().ok()?),
        None => (text, 0),
    };
    let (host, port) = place.rsplit_once(':')?;
    let port: u16 = port.parse().ok()?;
    let bus = if bus == 0 { port.saturating_add(BUS_PORT_ABOVE) } else { bus };
    Some((host.to_string(), port, bus))
}

fn add_slot(node: &mut Node, text: &str) -> Option<()> {
    let number = |text: &str| text.parse().ok().filter(|&slot: &u16| usize::from(slot) < Slot::COUNT);
    if let Some(open) = text.strip_prefix('[') {
        let open = open.trim_end_matches(']');
        let (list, slot, other) = match (open.split_once("->-"), open.split_once("-<-")) {
            (Some((slot, other)), _) => (&mut node.migrating, slot, other),
            (None, Some((slot, other))) => (&mut node.importing, slot, other),
            (None, None) => return None,
        };
        if list.len() < OPEN_MAX {
            list.push((number(slot)?, other.to_string()));
        }
        return Some(());
    }
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    (number(first)?..=number(last)?).for_each(|slot| node.slots.insert(slot));
    Some(())
}

/// Returns the owners of slots as a node sees them. Nodes without slots are left out. Returns `None` if no
/// node has any.
pub fn signature(lines: &[Line]) -> Option<Vec<(&str, &SlotSet)>> {
    let with_slots = lines.iter().filter(|line| !line.node.slots.is_empty());
    let mut owners: Vec<_> = with_slots.map(|line| (line.node.id.as_str(), &line.node.slots)).collect();
    owners.sort_by_key(|(id, _)| *id);
    (!owners.is_empty()).then_some(owners)
}

/// True if all of these views show the same owners of slots.
pub fn is_consistent(views: &[Vec<Line>]) -> bool {
    let first = views.first().and_then(|view| signature(view));
    views.len() <= 1 || (first.is_some() && views.iter().all(|view| signature(view) == first))
}

/// True if each of these views knows all of these nodes, as members.
pub fn know_each_other(views: &[Vec<Line>], ids: &[&str]) -> bool {
    let knows = |view: &Vec<Line>, id: &str| {
        let is_it = |line: &&Line| line.node.id == id && !line.node.has_flag("handshake");
        view.iter().any(|line| is_it(&line) && (line.linked || line.is_myself()))
    };
    views.iter().all(|view| ids.iter().all(|id| knows(view, id)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const VIEW: &str = "\
aaaaaaaaaaaa 127.0.0.1:7000@17000,name myself,master - 0 0 1 connected 0-2 7 [3->-bbbb] [4-<-cccc]
bbbb ::1:7001@20001,,tls-port=7 slave,fail? aaaaaaaaaaaa 0 1 2 disconnected
cccc :0@0 master,noaddr - 0 1 3 disconnected 8-9
";

    #[test]
    fn lines_are_read() {
        let lines = parse(VIEW).unwrap();
        let [first, second, third] = &lines[..] else { panic!("{lines:?}") };
        assert!(first.is_myself() && first.linked && first.node.is_primary());
        assert_eq!((first.node.address().as_str(), first.node.bus_port), ("127.0.0.1:7000", 17000));
        assert_eq!(first.node.slots.in_brackets(), "[0-2],[7]");
        assert_eq!(first.node.migrating, [(3, "bbbb".to_string())]);
        assert_eq!(first.node.importing, [(4, "cccc".to_string())]);
        assert_eq!((second.node.address().as_str(), second.node.bus_port), ("::1:7001", 20001));
        assert!(second.node.is_replica() && !second.linked);
        assert_eq!(second.node.primary.as_deref(), Some("aaaaaaaaaaaa"));
        assert_eq!((third.node.port, third.node.epoch), (0, 3));
        for bad in ["x", "x y z - 0 0 0 connected", "x h:1@2 master - 0 0 0 connected 99999", "x h:1 master"]
        {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn shown_as_valkey_cli_does() {
        let mut node = parse(VIEW).unwrap()[0].node.clone();
        node.replicas = 2;
        let expected = "  M: aaaaaaaaaaaa 127.0.0.1:7000\n     slots:[0-2],[7] (4 slots) master\n     \
                        2 additional replica(s)";
        assert_eq!(node.describe(2), expected);
        let replica = &parse(VIEW).unwrap()[1].node;
        assert_eq!(
            replica.describe(0),
            "S: bbbb ::1:7001\n   slots: (0 slots) slave,fail?\n   replicates aaaaaaaaaaaa"
        );
    }

    #[test]
    fn views_agree_about_slots_only() {
        let view = parse(VIEW).unwrap();
        let mut other = view.clone();
        other.reverse();
        other[0].node.epoch = 99;
        assert!(is_consistent(&[view.clone(), other.clone()]));
        other[0].node.slots.remove(8);
        assert!(!is_consistent(&[view.clone(), other.clone()]));
        assert!(is_consistent(&[other]));
        assert!(!is_consistent(&[Vec::new(), Vec::new()]), "slots that no node has agree about nothing");
        assert!(know_each_other(std::slice::from_ref(&view), &["aaaaaaaaaaaa"]));
        assert!(!know_each_other(&[view], &["aaaaaaaaaaaa", "bbbb"]));
    }
}
