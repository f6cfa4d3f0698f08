//! Addresses of host names, which the bus thread leaves to another one: a name server that hangs takes as
//! long as it likes.

use isotherm_cluster::NodeId;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::mpsc::{Receiver, Sender, channel};

use isotherm_node::cluster::requests::{BusMessage, BusSender};

/// A node, and the name that it announces.
pub type Question = (NodeId, String);

pub fn start(bus: BusSender) -> io::Result<Sender<Question>> {
    let (sender, questions) = channel();
    std::thread::Builder::new().name("cluster-names".into()).spawn(move || run(&bus, &questions))?;
    Ok(sender)
}

fn run(bus: &BusSender, questions: &Receiver<Question>) {
    while let Ok((node, name)) = questions.recv() {
        let found = (name.as_str(), 0).to_socket_addrs();
        let ips: Vec<IpAddr> = found.map_or_else(|_| Vec::new(), |found| found.map(|at| at.ip()).collect());
        bus.post(BusMessage::Resolved(node, ips));
    }
}
