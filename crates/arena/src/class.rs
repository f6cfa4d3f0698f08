//! Size classes: which bytes an object really takes, and how slabs of such objects are cut.
//!
//! ```text
//!   kind         sizes           step     classes
//!   Page, Index, 32 .. 1024      32 B     32         pages grow by a key at a time: +32 B is half a key
//!   Node           .. 4096       64 B     48
//!                  .. 8224       128 B    33         113 each
//!   Blob         64 .. 1040      16 B     62         step <= 1/16 of the size above 256 B
//!                  .. 1536       32 B     15         so a blob of 1032 B takes 1040, not 1280
//!                  .. 2048       64 B     8
//!                  .. 4224       16-144 B 33         the sizes that tile 128 KB: 63, 62, 61 ... 31 to a slab
//!                                        457 in all
//!
//!   a slab of order o (16 KB << o, aligned to its size; o = 0 .. 3):
//!   [owner u16 x count][room bits, only if count > 128][pad to 32][object 0][object 1] ... [object count-1][tail]
//! ```
//!
//! The owners lie at the front rather than in a table next to the arena: the tail would be lost anyway, so
//! for most classes they cost nothing, and a slab that holds one object still touches only its first 4 KB.
//!
//! **The order of a new slab follows the live bytes L of its class.** At rest a class wastes half a slab and
//! the tails:
//!
//! ```text
//!   waste(o) = slab(o) / 2 + L x tail share(o)          640 B: 16 KB loses 2.4 % to tail and header, 32 KB 0.4 %
//!   a line per order; the lowest one wins:              -> 16 KB up to L = 407 KB, then 32 KB
//! ```
//!
//! One fixed slab size per class (the smallest with a tail below 3 %) would waste 0.94 MB in an arena of 62 k
//! keys of 16 + 16 B, this 0.50 MB [calculated]: 7 B a key with 16 arenas. The crossings are computed at
//! compile time (`order_from`).

/// Objects of different kinds never share a slab.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// A packed page. Compaction moves it.
    Page,
    /// A value on its own. Compaction moves it.
    Blob,
    /// A directory or a run of slot records. Never moved.
    Index,
    /// A part of a large collection. Compaction moves it.
    Node,
}

pub const KIND_COUNT: usize = 4;

/// The largest object of kind Page, Index or Node: 8192 B and 32 B of header.
pub const OBJECT_BYTES_MAX: usize = 8224;
/// The largest object of kind Blob: at least a value of 4096 B and a header of 16 B.
pub const BLOB_BYTES_MAX: usize = blob_coarse_bytes(BLOB_COARSE_CLASSES - 1);

/// Slabs are runs of chunks; a side table has one record per chunk.
pub(crate) const CHUNK_BYTES: usize = 16 << 10;
/// The largest slab: 8 chunks, 128 KB.
pub(crate) const SLAB_ORDER_MAX: u32 = 3;
pub(crate) const ORDERS: usize = SLAB_ORDER_MAX as usize + 1;
/// Room bits that fit into the chunk's record; a slab of more objects keeps them after its owners.
pub(crate) const ROOM_BITS_INLINE: usize = 128;
/// Partial slabs are kept in lists by how full they are.
pub(crate) const BIN_COUNT: usize = 5;

const OBJECT_BYTES_MIN: usize = 32;

const PAGE_FINE_CLASSES: usize = 1024 / 32;
const PAGE_MIDDLE_CLASSES: usize = (4096 - 1024) / 64;
const PAGE_COARSE_CLASSES: usize = (OBJECT_BYTES_MAX - 4096).div_ceil(128);
const PAGE_CLASSES: usize = PAGE_FINE_CLASSES + PAGE_MIDDLE_CLASSES + PAGE_COARSE_CLASSES;

/// Beyond the power of two: a value of 1024 B with its head is 1032 B.
const BLOB_FINE_BYTES_MAX: usize = 1040;
/// The steps of 32 B begin here, one of them skipped: a class more would cost every arena half a slab.
const BLOB_MIDDLE_FROM: usize = 1056;
/// Smallest blob; smaller objects lie in a page.
const BLOB_BYTES_MIN: usize = 64;
const BLOB_FINE_CLASSES: usize = (BLOB_FINE_BYTES_MAX - BLOB_BYTES_MIN) / 16 + 1;
const BLOB_MIDDLE_CLASSES: usize = (1536 - BLOB_MIDDLE_FROM) / 32;
const BLOB_WIDE_CLASSES: usize = (2048 - 1536) / 64;
/// Number of the smallest coarse blobs that fill a slab of 128 KB. Each larger class has one less.
const BLOB_COARSE_COUNT_MAX: usize = 63;
const BLOB_COARSE_CLASSES: usize = BLOB_COARSE_COUNT_MAX - 31 + 1;

const INDEX_BASE: usize = PAGE_CLASSES;
const NODE_BASE: usize = 2 * PAGE_CLASSES;
const BLOB_BASE: usize = 3 * PAGE_CLASSES;
pub(crate) const CLASS_COUNT: usize =
    BLOB_BASE + BLOB_FINE_CLASSES + BLOB_MIDDLE_CLASSES + BLOB_WIDE_CLASSES + BLOB_COARSE_CLASSES;

#[derive(Copy, Clone)]
pub(crate) struct Class {
    /// Bytes of an object.
    pub bytes: u16,
    pub kind: Kind,
    /// Live bytes of the class from which its new slabs have this order; `u32::MAX` where another is always
    /// better.
    order_from: [u32; ORDERS],
}

/// A class in slabs of one order: everything that allocate and release need to know, computed at compile
/// time.
#[derive(Copy, Clone)]
pub(crate) struct Shape {
    pub class: u16,
    /// Bytes of an object.
    pub bytes: u16,
    /// Objects in a slab.
    pub count: u16,
    /// Offset of object 0, in bytes from the start of the slab.
    pub first_object: u16,
    /// A slab is `1 << order` chunks.
    pub order: u8,
    pub kind: Kind,
    /// ceil(2^32 / units of an object): a multiplication in place of the division.
    reciprocal: u32,
    /// BIN_COUNT * 2^16 / count, to find the bin of a fill.
    bin_scale: u32,
}

/// A number of a shape: `class * ORDERS + order`.
pub(crate) const fn shape_of(class: usize, order: u32) -> usize {
    class * ORDERS + order as usize
}

pub(crate) static CLASSES: [Class; CLASS_COUNT] = class_table();
pub(crate) static SHAPES: [Shape; CLASS_COUNT * ORDERS] = shape_table();

/// The bytes that an allocation of `bytes` really takes.
pub const fn class_bytes(kind: Kind, bytes: usize) -> usize {
    size_of_class(class_of(kind, bytes)).1
}

/// The largest request that `allocate` accepts for this kind.
pub const fn bytes_max(kind: Kind) -> usize {
    match kind {
        Kind::Page | Kind::Index | Kind::Node => OBJECT_BYTES_MAX,
        Kind::Blob => BLOB_BYTES_MAX,
    }
}

pub(crate) const fn class_of(kind: Kind, bytes: usize) -> usize {
    assert!(bytes <= bytes_max(kind), "the object is larger than its kind allows");
    let bytes = if bytes < OBJECT_BYTES_MIN { OBJECT_BYTES_MIN } else { bytes };
    match kind {
        Kind::Page => page_class(bytes),
        Kind::Index => INDEX_BASE + page_class(bytes),
        Kind::Node => NODE_BASE + page_class(bytes),
        Kind::Blob if bytes <= BLOB_FINE_BYTES_MAX => {
            BLOB_BASE + bytes.saturating_sub(BLOB_BYTES_MIN).div_ceil(16)
        }
        Kind::Blob if bytes <= 1536 => {
            BLOB_BASE + BLOB_FINE_CLASSES + bytes.saturating_sub(BLOB_MIDDLE_FROM + 1) / 32
        }
        Kind::Blob if bytes <= 2048 => {
            BLOB_BASE + BLOB_FINE_CLASSES + BLOB_MIDDLE_CLASSES + (bytes - 1537) / 64
        }
        Kind::Blob => {
            BLOB_BASE + BLOB_FINE_CLASSES + BLOB_MIDDLE_CLASSES + BLOB_WIDE_CLASSES + blob_coarse_class(bytes)
        }
    }
}

const fn page_class(bytes: usize) -> usize {
    match bytes {
        0..=1024 => bytes.div_ceil(32) - 1,
        1025..=4096 => PAGE_FINE_CLASSES - 1 + (bytes - 1024).div_ceil(64),
        _ => PAGE_FINE_CLASSES + PAGE_MIDDLE_CLASSES - 1 + (bytes - 4096).div_ceil(128),
    }
}

const fn page_class_bytes(class: usize) -> usize {
    if class < PAGE_FINE_CLASSES {
        return (class + 1) * 32;
    }
    let class = class - PAGE_FINE_CLASSES;
    if class < PAGE_MIDDLE_CLASSES {
        return 1024 + (class + 1) * 64;
    }
    let bytes = 4096 + (class - PAGE_MIDDLE_CLASSES + 1) * 128;
    if bytes < OBJECT_BYTES_MAX { bytes } else { OBJECT_BYTES_MAX }
}

/// The largest size at which `BLOB_COARSE_COUNT_MAX - class` objects fit into the largest slab.
const fn blob_coarse_bytes(class: usize) -> usize {
    let slab = CHUNK_BYTES << SLAB_ORDER_MAX;
    let count = BLOB_COARSE_COUNT_MAX - class;
    (slab - header_bytes(count)) / count / 16 * 16
}

const fn blob_coarse_class(bytes: usize) -> usize {
    // The quotient is the class, or one next to it because of the header.
    let count = (CHUNK_BYTES << SLAB_ORDER_MAX) / bytes;
    let mut class = BLOB_COARSE_COUNT_MAX.saturating_sub(count);
    while blob_coarse_bytes(class) < bytes {
        class += 1;
    }
    class
}

/// The inverse of `class_of`.
const fn size_of_class(class: usize) -> (Kind, usize) {
    if class < INDEX_BASE {
        return (Kind::Page, page_class_bytes(class));
    }
    if class < NODE_BASE {
        return (Kind::Index, page_class_bytes(class - INDEX_BASE));
    }
    if class < BLOB_BASE {
        return (Kind::Node, page_class_bytes(class - NODE_BASE));
    }
    let blob = class - BLOB_BASE;
    if blob < BLOB_FINE_CLASSES {
        return (Kind::Blob, BLOB_BYTES_MIN + blob * 16);
    }
    let blob = blob - BLOB_FINE_CLASSES;
    if blob < BLOB_MIDDLE_CLASSES {
        return (Kind::Blob, BLOB_MIDDLE_FROM + (blob + 1) * 32);
    }
    let blob = blob - BLOB_MIDDLE_CLASSES;
    if blob < BLOB_WIDE_CLASSES {
        return (Kind::Blob, 1536 + (blob + 1) * 64);
    }
    (Kind::Blob, blob_coarse_bytes(blob - BLOB_WIDE_CLASSES))
}

impl Class {
    /// The order of new slabs when the class has this many live bytes.
    pub fn order_for(&self, live_bytes: u64) -> u32 {
        (0..ORDERS).rev().find(|&order| live_bytes >= self.order_from[order] as u64).unwrap_or(0) as u32
    }
}

impl Shape {
    pub fn slab_bytes(&self) -> usize {
        CHUNK_BYTES << self.order
    }

    /// Bytes in front of the objects: owners, and the room bits of a slab with many objects.
    pub fn header_bytes(&self) -> usize {
        self.first_object as usize
    }

    /// Bytes after the last object.
    pub fn tail_bytes(&self) -> usize {
        self.slab_bytes() - self.object_offset(self.count as usize)
    }

    pub fn room_is_inline(&self) -> bool {
        self.count as usize <= ROOM_BITS_INLINE
    }

    pub fn room_words(&self) -> usize {
        (self.count as usize).div_ceil(64)
    }

    /// Returns the offset of the room bits of a slab with many objects.
    pub fn room_offset(&self) -> usize {
        owners_bytes(self.count as usize)
    }

    pub fn object_offset(&self, index: usize) -> usize {
        self.first_object as usize + index * self.bytes as usize
    }

    /// The object that starts `offset` bytes into a slab. A handle that points anywhere else is a bug of the
    /// caller.
    pub fn index_at(&self, offset: usize) -> usize {
        assert!(offset >= self.first_object as usize, "the handle points into a slab's header");
        let index = self.index_before(offset);
        assert!(
            index < self.count as usize && self.object_offset(index) == offset,
            "the handle points into the middle of an object"
        );
        index
    }

    /// Returns whether an object starts `offset` bytes into a slab.
    pub fn starts_object(&self, offset: usize) -> bool {
        if offset < self.first_object as usize {
            return false;
        }
        let index = self.index_before(offset);
        index < self.count as usize && self.object_offset(index) == offset
    }

    fn index_before(&self, offset: usize) -> usize {
        let units = ((offset - self.first_object as usize) / 16) as u64;
        ((units * self.reciprocal as u64) >> 32) as usize
    }

    /// 0 for nearly empty to `BIN_COUNT - 1` for nearly full. A full slab is in no bin.
    pub fn bin_of(&self, live: usize) -> usize {
        debug_assert!(live < self.count as usize);
        (live * self.bin_scale as usize) >> 16
    }
}

/// Rounded to 8 so that the words of room bits after them are aligned.
const fn owners_bytes(count: usize) -> usize {
    (2 * count).next_multiple_of(8)
}

const fn header_bytes(count: usize) -> usize {
    let room = if count > ROOM_BITS_INLINE { count.div_ceil(64) * 8 } else { 0 };
    (owners_bytes(count) + room).next_multiple_of(32)
}

/// The objects that fit into a slab together with the header they need.
const fn count_in(slab_bytes: usize, object_bytes: usize) -> usize {
    let mut count = slab_bytes / (object_bytes + 2);
    while header_bytes(count) + count * object_bytes > slab_bytes {
        count -= 1;
    }
    count
}

/// Returns whether slabs of this order may be used. In larger slabs the room bits must fit into the record,
/// so that a release does not touch a further cold line.
const fn order_is_allowed(object_bytes: usize, order: u32) -> bool {
    order == 0 || count_in(CHUNK_BYTES << order, object_bytes) <= ROOM_BITS_INLINE
}

/// Returns the bytes that a slab takes beyond its objects, per 2^20 bytes of objects.
const fn lost_share(object_bytes: usize, order: u32) -> u64 {
    let slab = CHUNK_BYTES << order;
    let objects = count_in(slab, object_bytes) * object_bytes;
    ((slab - objects) << 20) as u64 / objects as u64
}

/// The lower envelope of the lines `slab / 2 + L x share`.
const fn orders_from(object_bytes: usize) -> [u32; ORDERS] {
    let mut from = [u32::MAX; ORDERS];
    let mut order = 0;
    from[0] = 0;
    while order < SLAB_ORDER_MAX {
        let mut best = order;
        let mut best_from = u64::MAX;
        let mut other = order + 1;
        while other <= SLAB_ORDER_MAX {
            let (share, less) = (lost_share(object_bytes, order), lost_share(object_bytes, other));
            if order_is_allowed(object_bytes, other) && less < share {
                let more = ((CHUNK_BYTES << other) - (CHUNK_BYTES << order)) as u64 / 2;
                let crossing = (more << 20) / (share - less);
                if crossing < best_from {
                    best = other;
                    best_from = crossing;
                }
            }
            other += 1;
        }
        if best == order {
            break;
        }
        from[best as usize] = if best_from < u32::MAX as u64 { best_from as u32 } else { u32::MAX };
        order = best;
    }
    from
}

const fn class_table() -> [Class; CLASS_COUNT] {
    let mut classes = [Class { bytes: 0, kind: Kind::Page, order_from: [0; ORDERS] }; CLASS_COUNT];
    let mut class = 0;
    while class < CLASS_COUNT {
        let (kind, bytes) = size_of_class(class);
        assert!(class_of(kind, bytes) == class, "class_of and size_of_class are each other's inverse");
        classes[class] = Class { bytes: bytes as u16, kind, order_from: orders_from(bytes) };
        class += 1;
    }
    classes
}

const fn shape_table() -> [Shape; CLASS_COUNT * ORDERS] {
    let unused = Shape {
        class: 0,
        bytes: 0,
        count: 0,
        first_object: 0,
        order: 0,
        kind: Kind::Page,
        reciprocal: 0,
        bin_scale: 0,
    };
    let mut shapes = [unused; CLASS_COUNT * ORDERS];
    let mut class = 0;
    while class < CLASS_COUNT {
        let (kind, bytes) = size_of_class(class);
        let mut order = 0;
        while order <= SLAB_ORDER_MAX && order_is_allowed(bytes, order) {
            let count = count_in(CHUNK_BYTES << order, bytes);
            let shape = Shape {
                class: class as u16,
                bytes: bytes as u16,
                count: count as u16,
                first_object: header_bytes(count) as u16,
                order: order as u8,
                kind,
                reciprocal: (1u64 << 32).div_ceil(bytes as u64 / 16) as u32,
                bin_scale: ((BIN_COUNT as u32) << 16) / count as u32,
            };
            check_shape(&shape);
            shapes[shape_of(class, order)] = shape;
            order += 1;
        }
        class += 1;
    }
    shapes
}

/// Runs at compile time for every shape.
const fn check_shape(shape: &Shape) {
    let bytes = shape.bytes as usize;
    let count = shape.count as usize;
    let slab = CHUNK_BYTES << shape.order;
    assert!(bytes.is_multiple_of(16) && (shape.first_object as usize).is_multiple_of(32));
    assert!(count >= 1 && count <= 512, "a slab has at most 8 words of room bits");
    assert!(shape.first_object as usize + count * bytes <= slab);
    // The reciprocal is too large by less than units / 2^32, so the quotient is exact for all offsets in a
    // slab.
    let units = bytes as u64 / 16;
    assert!((slab as u64 / 16) * (units - 1) < 1 << 32);
    assert!(((count as u64 - 1) * shape.bin_scale as u64) >> 16 < BIN_COUNT as u64);
}

const _: () = assert!(class_bytes(Kind::Blob, 1032) == 1040);
const _: () = assert!(class_bytes(Kind::Page, 1) == 32);
const _: () = assert!(class_bytes(Kind::Page, OBJECT_BYTES_MAX) == OBJECT_BYTES_MAX);
const _: () = assert!(class_bytes(Kind::Blob, 4096 + 16) == BLOB_BYTES_MAX && BLOB_BYTES_MAX == 4224);
const _: () = assert!(class_bytes(Kind::Blob, 2048 + 16) == 2064);
const _: () = assert!(CLASS_COUNT == 457);

#[cfg(test)]
mod tests {
    use super::*;

    fn shapes() -> impl Iterator<Item = &'static Shape> {
        // Miri runs some thousand times slower.
        SHAPES.iter().filter(|shape| shape.count > 0).step_by(if cfg!(miri) { 173 } else { 1 })
    }

    #[test]
    fn every_object_offset_is_found_again_and_others_are_not() {
        for shape in shapes() {
            for index in 0..shape.count as usize {
                assert_eq!(shape.index_at(shape.object_offset(index)), index);
                assert!(!shape.starts_object(shape.object_offset(index) + 16));
                assert!(!shape.starts_object(shape.object_offset(index) - 16));
            }
            assert!(!shape.starts_object(0));
            assert!(!shape.starts_object(shape.object_offset(shape.count as usize)));
        }
    }

    #[test]
    fn a_class_is_at_least_the_request_and_at_most_a_step_more() {
        for kind in [Kind::Page, Kind::Blob, Kind::Index, Kind::Node] {
            let mut previous = 0;
            for bytes in (0..=bytes_max(kind)).step_by(if cfg!(miri) { 97 } else { 1 }) {
                let rounded = class_bytes(kind, bytes);
                assert!(rounded >= bytes && rounded >= previous);
                if bytes > 512 {
                    assert!((rounded - bytes) * 16 <= bytes, "{kind:?} {bytes} takes {rounded}");
                }
                previous = rounded;
            }
        }
    }

    #[test]
    fn the_order_is_the_one_that_wastes_least() {
        for class in CLASSES.iter().step_by(if cfg!(miri) { 97 } else { 1 }) {
            let bytes = class.bytes as usize;
            for live in [0, 10_000, 100_000, 700_000, 3_000_000, 40_000_000, 1_000_000_000] {
                let waste = |order: u32| {
                    let share = lost_share(bytes, order) as f64 / 1048576.0;
                    (CHUNK_BYTES << order) as f64 / 2.0 + share * live as f64
                };
                let allowed = (0..=SLAB_ORDER_MAX).filter(|&order| order_is_allowed(bytes, order));
                let least = allowed.map(waste).fold(f64::MAX, f64::min);
                let chosen = waste(class.order_for(live));
                assert!(chosen <= least * 1.001 + 64.0, "{bytes} B, {live} live: {chosen}, best {least}");
            }
        }
    }

    #[test]
    fn bins_rise_with_the_fill() {
        for shape in shapes() {
            let bins: Vec<usize> = (0..shape.count as usize).map(|live| shape.bin_of(live)).collect();
            assert!(bins.is_sorted());
            assert_eq!(bins[0], 0);
            assert!(*bins.last().unwrap() < BIN_COUNT);
        }
    }
}
