//! Clusters: what a client that follows redirects knows of one.

pub mod topology;
