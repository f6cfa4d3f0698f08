//! The threads of MIGRATE, which begin when they are needed.

use super::course::Course;
use isotherm_engine::request::execute::Exec;
use isotherm_node::Node;
use isotherm_node::observe::holds;

/// Once, at the start of the process.
pub fn attach(node: &'static Node) {
    node.migrations.attach(move || {
        std::thread::Builder::new().name("migrate".into()).spawn(move || run(node)).map(|_| ())
    });
}

fn run(node: &'static Node) {
    holds::enter(node.hold_sinks(), node.migrations_number());
    let mut exec = Exec::of_migrations(node);
    let lease = node.runs.new_mark().id;
    loop {
        let job = node.migrations.next();
        if !job.waiter.has_ended() {
            Course::new(node, &job, lease).run(&mut exec);
        }
    }
}
