//! The libraries compared with those of a real Valkey: recorded calls, and generated ones where a server is
//! available.

mod beside_valkey;
mod calls;
mod generate;
mod golden;
mod through_lua;
