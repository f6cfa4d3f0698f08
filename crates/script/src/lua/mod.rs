//! The room of `unsafe`: Lua in C, and its binding.
