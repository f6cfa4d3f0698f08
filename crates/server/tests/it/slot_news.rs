//! CLIENT MAINT_NOTIFICATIONS: clients hear of slots that leave their node, in the words that libraries send
//! and read.

use crate::cluster_nodes::{Node, cluster};
use crate::common::{Client, Server};

const ON: &str = "CLIENT MAINT_NOTIFICATIONS ON";
const KNOWN: [&str; 2] = ["--cluster-maint-notifications", "yes"];

/// One that speaks RESP3.
fn modern(server: &Server) -> Client {
    let mut client = server.client();
    assert!(client.ask("HELLO 3").starts_with('%'));
    client
}

fn listener(server: &Server) -> Client {
    let mut client = modern(server);
    client.check(&format!("{ON} moving-endpoint-type none"), "+OK\r\n");
    client
}

/// As a tool of Valkey's says it, without its keys.
fn moves(from: &Node, to: &Node, slot: u16) {
    let said = format!("CLUSTER SETSLOT {slot} NODE {}", to.id);
    to.client().check(&said, "+OK\r\n");
    from.client().check(&said, "+OK\r\n");
}

/// The next push, without its number.
fn push(client: &mut Client) -> Vec<String> {
    let text = String::from_utf8(client.read_reply()).unwrap();
    assert!(text.starts_with(">3\r\n"), "{text:?}");
    let words = text.split("\r\n").filter(|word| !word.is_empty() && !word.starts_with(['>', '*', '$', ':']));
    words.map(str::to_string).collect()
}

#[test]
fn what_libraries_say_is_understood() {
    let node = Node::start(&KNOWN);
    let mut client = node.client();
    let needs = "-ERR CLIENT MAINT_NOTIFICATIONS sends pushes, which need RESP3\r\n";
    client.check(ON, needs);
    client.check("CLIENT MAINT_NOTIFICATIONS OFF", "+OK\r\n");
    let mut client = modern(&node.server);
    // go-redis, redis-py.
    client.check("client maint_notifications on moving-endpoint-type external-fqdn", "+OK\r\n");
    client.check(&format!("{ON} moving-endpoint-type internal-ip"), "+OK\r\n");
    client.check("client maint_notifications off", "+OK\r\n");
    client.check(ON, "+OK\r\n");
    let syntax = "-ERR syntax error\r\n";
    for wrong in [
        "",
        " x",
        " none",
        " moving-endpoint-type",
        " moving-endpoint-type none x",
        " moving-endpoint-type x",
    ] {
        let (request, reply) = match wrong {
            "" => ("CLIENT MAINT_NOTIFICATIONS MAYBE".to_string(), syntax),
            wrong => (format!("{ON}{wrong}"), syntax),
        };
        client.check(&request, reply);
    }
    let arity = "-ERR wrong number of arguments for 'client|maint_notifications' command\r\n";
    client.check("CLIENT MAINT_NOTIFICATIONS", arity);
}

#[test]
fn it_is_unknown_to_a_lone_server_and_where_it_is_not_switched_on() {
    let unknown = "-ERR unknown subcommand 'MAINT_NOTIFICATIONS'. Try CLIENT HELP.\r\n";
    let lone = Server::start(&[]);
    modern(&lone).check(ON, unknown);
    let node = Node::start(&[]);
    let mut client = modern(&node.server);
    client.check(ON, unknown);
    client.check("CLIENT MAINT_NOTIFICATIONS", unknown);
    // So it is in every list; and a user without a right to it whose library sends it makes no entry in the
    // log.
    let lists = ["COMMAND LIST", "COMMAND DOCS client", "COMMAND INFO client", "ACL CAT connection"];
    let is_named = |client: &mut Client| {
        lists.map(|list| client.ask(list).contains("maint_notifications")).iter().filter(|is| **is).count()
    };
    assert_eq!(is_named(&mut client), 0);
    client.check("COMMAND INFO client|maint_notifications", "*1\r\n_\r\n");
    client.check(
        "ACL SETUSER poor on nopass +get +client|maint_notifications -client|maint_notifications",
        "+OK\r\n",
    );
    let mut poor = modern(&node.server);
    poor.check("AUTH poor any", "+OK\r\n");
    poor.check(ON, unknown);
    client.check("ACL LOG", "*0\r\n");
    client.check("CONFIG SET cluster-maint-notifications yes", "+OK\r\n");
    client.check(ON, "+OK\r\n");
    assert_eq!(is_named(&mut client), lists.len());
    let denied = "-NOPERM User poor has no permissions to run the 'client|maint_notifications' command\r\n";
    poor.check(ON, denied);
    client.check("CONFIG SET cluster-maint-notifications no", "+OK\r\n");
    poor.check(ON, unknown);
    assert_eq!(is_named(&mut client), 0);
}

#[test]
fn the_clients_of_the_node_that_a_slot_leaves_hear_of_it() {
    let nodes = cluster(2, &KNOWN);
    let (from, to) = (&nodes[0], &nodes[1]);
    let (mut here, mut there) = (listener(&from.server), listener(&to.server));
    let (mut deaf, mut was_listener, mut of_old) =
        (modern(&from.server), listener(&from.server), listener(&from.server));
    was_listener.check("CLIENT MAINT_NOTIFICATIONS OFF", "+OK\r\n");
    assert!(of_old.ask("HELLO 2").starts_with('*'));
    listener(&from.server).check("QUIT", "+OK\r\n");
    let mut reset = listener(&from.server);
    reset.check("RESET", "+RESET\r\n");

    to.client().check(&format!("CLUSTER SETSLOT 5 IMPORTING {}", from.id), "+OK\r\n");
    from.client().check(&format!("CLUSTER SETSLOT 5 MIGRATING {}", to.id), "+OK\r\n");
    assert_eq!(push(&mut here), ["SMIGRATING", "5"]);
    moves(from, to, 5);
    let address = |node: &Node| format!("127.0.0.1:{}", node.server.port);
    assert_eq!(push(&mut here), ["SMIGRATED", &address(from), &address(to), "5"]);
    // Before the push it was not answered anything else, and it is served after it.
    here.check("PING", "+PONG\r\n");

    // The first of a second was said; those that follow are said together.
    for slot in [6, 7, 9] {
        moves(from, to, slot);
    }
    let (mut pushes, mut slots) = (0, Vec::new());
    while slots.len() < 3 {
        let words = push(&mut here);
        assert_eq!(words[..3], ["SMIGRATED", &address(from), &address(to)]);
        pushes += 1;
        let list = words[3].replace("6-7", "6,7");
        slots.extend(list.split(',').map(str::to_string));
    }
    assert_eq!(slots, ["6", "7", "9"]);
    assert!(pushes <= 2, "{pushes}");
    for (name, client) in [
        ("the other node", &mut there),
        ("RESP3 without it", &mut deaf),
        ("OFF", &mut was_listener),
        ("RESP2 since", &mut of_old),
        ("RESET", &mut reset),
    ] {
        assert_eq!(client.ask("PING"), "+PONG\r\n", "{name}");
    }
}
