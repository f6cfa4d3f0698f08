//! State of the values on disk that all threads see: files, reads, counters.

pub mod asked;
pub mod checkpoint;
pub mod copies;
pub mod damaged;
pub mod errands;
pub mod fetches;
pub mod files;
pub mod handing;
pub mod health;
pub mod homes;
pub mod in_order;
pub mod keeper;
pub mod kept_segments;
pub mod lent;
pub mod open_files;
pub mod owner;
pub mod pace;
pub mod read_warnings;
pub mod reading;
pub mod reads;
pub mod rings;
pub mod state;
pub mod target;
pub mod times;
pub mod verify;

pub use damaged::text as damaged_text;
pub use files::ReadError;
pub use health::State;
pub use state::Tier;
