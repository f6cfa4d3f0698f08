//! Distances on a sphere, and the shapes that are searched.
//!
//! A search looks into nine cells, the one of its centre and those around it, of a size that covers the
//! shape's bounding box; whether a member of theirs lies in the shape is computed for each.
//!
//! The formulas, and the order of their operations, are Valkey's: replies show four decimals of a metre.

use super::hash::{Area, Cell, LATITUDE_MAX, LONGITUDE_MAX, Position, STEP_MAX};
use isotherm_stdx::steps;
use std::f64::consts::PI;

const EARTH_RADIUS_M: f64 = 6_372_797.560856;
/// Half of the way around the equator on a web map.
const MERCATOR_MAX_M: f64 = 20_037_726.37;
const RADIANS: f64 = PI / 180.0;

/// Longitudes that differ by less than some nanometres are the same.
const SAME_MERIDIAN: f64 = 1e-15;

fn meridian_distance_m(from: f64, to: f64) -> f64 {
    EARTH_RADIUS_M * (to * RADIANS - from * RADIANS).abs()
}

/// The great circle, by haversines.
pub(super) fn distance_m(from: Position, to: Position) -> f64 {
    let across = ((to.longitude * RADIANS - from.longitude * RADIANS) / 2.0).sin();
    if across.abs() <= SAME_MERIDIAN {
        return meridian_distance_m(from.latitude, to.latitude);
    }
    let (from, to) = (from.latitude * RADIANS, to.latitude * RADIANS);
    let along = ((to - from) / 2.0).sin();
    let root = along * along + from.cos() * to.cos() * across * across;
    2.0 * EARTH_RADIUS_M * root.sqrt().asin()
}

/// Shape that is searched, with lengths in the unit of the request.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Shape {
    Circle { radius: f64 },
    Box { width: f64, height: f64 },
    Polygon(Vec<Position>),
}

#[derive(Clone, PartialEq, Debug)]
pub(super) struct Search {
    pub shape: Shape,
    /// Centre of the shape. `settle` computes that of a polygon.
    pub centre: Position,
    /// Metres in a unit.
    pub unit_m: f64,
}

impl Search {
    /// A polygon's centre is that of its corners on the sphere.
    pub fn settle(&mut self) {
        let Shape::Polygon(corners) = &self.shape else { return };
        let (mut x, mut y, mut z) = (0.0, 0.0, 0.0);
        steps::note(corners.len() as u64);
        for corner in corners {
            let (longitude, latitude) = (corner.longitude * RADIANS, corner.latitude * RADIANS);
            x += latitude.cos() * longitude.cos();
            y += latitude.cos() * longitude.sin();
            z += latitude.sin();
        }
        let longitude = f64::atan2(y, x) / RADIANS;
        let latitude = f64::atan2(z, (x * x + y * y).sqrt()) / RADIANS;
        self.centre = Position { longitude, latitude };
    }

    /// The distance from the centre in metres, if the position lies in the shape.
    pub fn distance_inside_m(&self, position: Position) -> Option<f64> {
        let is_inside = match &self.shape {
            Shape::Circle { radius } => {
                let distance = distance_m(self.centre, position);
                return (distance <= radius * self.unit_m).then_some(distance);
            }
            Shape::Box { width, height } => {
                let level = Position { latitude: position.latitude, ..self.centre };
                meridian_distance_m(position.latitude, self.centre.latitude) <= height * self.unit_m / 2.0
                    && distance_m(position, level) <= width * self.unit_m / 2.0
            }
            Shape::Polygon(corners) => is_in_polygon(corners, position),
        };
        is_inside.then(|| distance_m(self.centre, position))
    }

    /// The nine cells to look into, without those that the bounding box does not touch.
    pub fn cells(&self) -> Vec<Cell> {
        let bounds = self.bounds();
        let mut step = step_for(self.reach_m(&bounds), self.centre.latitude);
        if step > 1 && !covers(Cell::of(self.centre, step, LATITUDE_MAX), &bounds) {
            step -= 1;
        }
        let cell = Cell::of(self.centre, step, LATITUDE_MAX);
        let area = cell.area();
        let is_needed = |&(east, north): &(i32, i32)| {
            // Cells of step 1 are quarters of the world: all of them are.
            step < 2
                || !(north < 0 && area.south < bounds.south
                    || north > 0 && area.north > bounds.north
                    || east < 0 && area.west < bounds.west
                    || east > 0 && area.east > bounds.east)
        };
        const AROUND: [(i32, i32); 9] =
            [(0, 0), (0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (-1, 1), (1, -1), (-1, -1)];
        AROUND.iter().filter(|way| is_needed(way)).map(|&(east, north)| cell.neighbour(east, north)).collect()
    }

    fn bounds(&self) -> Area {
        let (width, height) = match &self.shape {
            Shape::Circle { radius } => (self.unit_m * radius, self.unit_m * radius),
            Shape::Box { width, height } => (self.unit_m * width / 2.0, self.unit_m * height / 2.0),
            Shape::Polygon(corners) => return bounds_of(corners),
        };
        let Position { longitude, latitude } = self.centre;
        let north = height / EARTH_RADIUS_M / RADIANS;
        let east_at = |latitude: f64| width / EARTH_RADIUS_M / (latitude * RADIANS).cos() / RADIANS;
        // A degree of longitude is longest at the side that is nearer to the equator.
        let east = if latitude < 0.0 { east_at(latitude - north) } else { east_at(latitude + north) };
        Area {
            west: longitude - east,
            south: latitude - north,
            east: longitude + east,
            north: latitude + north,
        }
    }

    /// Returns the greatest distance from the centre at which a member may lie.
    fn reach_m(&self, bounds: &Area) -> f64 {
        let reach = match &self.shape {
            Shape::Circle { radius } => *radius,
            Shape::Box { width, height } => {
                ((width / 2.0) * (width / 2.0) + (height / 2.0) * (height / 2.0)).sqrt()
            }
            Shape::Polygon(_) => {
                let corners = [
                    (bounds.west, bounds.north),
                    (bounds.east, bounds.north),
                    (bounds.west, bounds.south),
                    (bounds.east, bounds.south),
                ];
                let to = |(longitude, latitude)| distance_m(self.centre, Position { longitude, latitude });
                corners.into_iter().map(to).fold(0.0, f64::max)
            }
        };
        reach * self.unit_m
    }
}

/// Returns whether the cells around this one reach as far as the bounds on every side.
fn covers(cell: Cell, bounds: &Area) -> bool {
    let side = |east, north| cell.neighbour(east, north).area();
    side(0, 1).north >= bounds.north
        && side(0, -1).south <= bounds.south
        && side(1, 0).east >= bounds.east
        && side(-1, 0).west <= bounds.west
}

/// Returns the finest step at which nine cells cover a circle.
fn step_for(mut radius_m: f64, latitude: f64) -> u32 {
    if radius_m == 0.0 {
        return STEP_MAX;
    }
    let mut step: i32 = 1;
    while radius_m < MERCATOR_MAX_M {
        radius_m *= 2.0;
        step += 1;
    }
    step -= 2;
    // Towards the poles the meridians come closer.
    step -= i32::from(latitude.abs() > 66.0) + i32::from(latitude.abs() > 80.0);
    step.clamp(1, STEP_MAX as i32) as u32
}

fn bounds_of(corners: &[Position]) -> Area {
    let none = Area { west: LONGITUDE_MAX, south: LATITUDE_MAX, east: -LONGITUDE_MAX, north: -LATITUDE_MAX };
    corners.iter().fold(none, |bounds, corner| Area {
        west: bounds.west.min(corner.longitude),
        south: bounds.south.min(corner.latitude),
        east: bounds.east.max(corner.longitude),
        north: bounds.north.max(corner.latitude),
    })
}

/// Returns whether a ray to the east crosses an odd number of sides.
fn is_in_polygon(corners: &[Position], at: Position) -> bool {
    let Some(mut last) = corners.last() else { return false };
    let mut inside = false;
    steps::note(corners.len() as u64);
    for corner in corners {
        let spans = (corner.latitude > at.latitude) != (last.latitude > at.latitude);
        if spans {
            let crossing = (last.longitude - corner.longitude) * (at.latitude - corner.latitude)
                / (last.latitude - corner.latitude)
                + corner.longitude;
            inside ^= at.longitude < crossing;
        }
        last = corner;
    }
    inside
}
