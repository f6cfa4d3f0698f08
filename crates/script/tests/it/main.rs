//! Scripts through the crate's own interface, with a host that keeps a few keys.

mod build;
mod conversions;
mod cves;
mod debugging;
mod differential;
mod errors;
mod functions;
mod memory;
mod model;
mod sandbox;
mod stopping;
