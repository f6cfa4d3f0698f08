//! How the result of a script becomes a reply.
