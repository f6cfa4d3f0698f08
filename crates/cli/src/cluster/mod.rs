//! Clusters: what a client that follows redirects knows of one, and the cluster manager (`--cluster`).

pub mod topology;

pub mod node;
pub mod plan;
pub mod slots;
