//! `check`, `info` and `fix`.

use super::place;
use crate::Fallible;
use crate::cluster::checking::{How, check as check_cluster, show_info};
use crate::cluster::choices::Choices;
use crate::cluster::link::Way;
use crate::cluster::roster::{Cluster, Whom};
use crate::cluster::survey::say_dangers;

pub fn info(choices: &Choices, way: &Way) -> Fallible<bool> {
    let mut cluster = Cluster::load(choices, way, &place(&choices.args)?, Whom::Reachable)?;
    show_info(&mut cluster)?;
    Ok(true)
}

pub fn check(choices: &Choices, way: &Way) -> Fallible<bool> {
    let mut cluster = Cluster::load(choices, way, &place(&choices.args)?, Whom::Reachable)?;
    show_info(&mut cluster)?;
    let is_well = check_cluster(&mut cluster, How::default())?;
    say_dangers(&mut cluster)?;
    Ok(is_well)
}

pub fn fix(choices: &Choices, way: &Way) -> Fallible<bool> {
    let mut cluster = Cluster::load(choices, way, &place(&choices.args)?, Whom::Reachable)?;
    show_info(&mut cluster)?;
    check_cluster(&mut cluster, How { fix: true, ..How::default() })
}
