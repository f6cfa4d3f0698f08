//! The AOF's writer on a disk that crashes and fails, by seeds, and its policies step by step.

mod machine;
mod policies;
mod recovery;
mod seeds;
