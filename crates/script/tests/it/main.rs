//! Scripts through the crate's own interface, with a host that keeps a few keys.

mod books;
mod conversions;
mod cves;
mod differential;
mod errors;
mod model;
mod sandbox;
mod stopping;
