//! The walk of a snapshot through a partition (see `snapshot`): one step of it.
//!
//! ```text
//!   a step     the collection at hand, to its end; else what writers saved; else the next collection that was met;
//!              else the next page
//!   late       what is long: shared under the lock, emitted behind it. It ends the step, so that nothing overtakes it
//! ```

use crate::access::partition::Partition;
use crate::layout::directory;
use crate::layout::entry::{EntryBytes, Place, read_int};
use crate::layout::kind::{Db, Form};
use crate::layout::last_used::AccessStamp;
use crate::layout::packed::Element;
use crate::layout::pile::Pile;
use crate::tables::frozen::BundleAddress;
use crate::tables::geometry::Geometry;
use crate::upkeep::snapshot::{SnapshotBundle, SnapshotEntry, SnapshotItem, SnapshotNode};
use crate::values::collection::Stored;
use crate::values::parts::Part;
use crate::values::receiver::{LongPart, PAGE_WEIGHT_MAX, Receiver, weight_of};
use crate::values::saved::{Pending, Saved, SavedBundle};
use crate::values::store::Store;
use crate::values::stream;
use crate::values::value::Value;
use isotherm_arena::Handle;
use isotherm_stdx::{Steps, UnixMs};

/// Position at which the walk of a partition continues.
#[derive(Clone, Copy, Default)]
pub(crate) struct WalkPlace {
    db: u16,
    /// The slot's place in the partition, and whether it was found to have keys.
    slot: usize,
    is_in_slot: bool,
    /// Number of the table, among those that were the database's at the cut. They come in the order of their
    /// numbers.
    table: u32,
    page: u32,
    /// Bundle from which the walk continues: bundles come after the pages.
    bundle: Option<BundleAddress>,
}

/// Item that is left for when the lock is released.
pub(crate) enum Late {
    Entry(Saved),
    Bundle(SavedBundle),
    Part(LongPart),
    End,
    /// Pile that is only dropped: it has no item to emit.
    Garbage(#[expect(dead_code, reason = "it is only dropped")] Pile<u32>),
}

impl Late {
    pub fn visit(self, visit: &mut dyn FnMut(SnapshotItem<'_>)) {
        match self {
            Late::Entry(saved) => visit(SnapshotItem::Entry(entry_of(&saved))),
            Late::Bundle(SavedBundle { db, slot, name, reference, prints, expiring }) => {
                let prints = &prints;
                visit(SnapshotItem::Bundle(SnapshotBundle { db, slot, name, reference, prints, expiring }));
            }
            Late::Part(LongPart::Node(part)) => visit(SnapshotItem::Node(SnapshotNode { part })),
            Late::Part(part) => visit_long(&part, &mut |part| visit(SnapshotItem::Part(part))),
            Late::End => visit(SnapshotItem::End),
            Late::Garbage(_) => {}
        }
    }
}

/// A snapshot emits what is stored, whether its time has come or not.
const ALL_TIMES: UnixMs = UnixMs(i64::MIN);

fn entry_of(saved: &Saved) -> SnapshotEntry<'_> {
    let value = match saved.value() {
        (_, Err(value)) => Value::Cold(value),
        (Form::Int, Ok(bytes)) => Value::Int(read_int(bytes)),
        (form, Ok(bytes)) if form.is_collection() => {
            Value::collection(form, Stored::Packed(bytes, form), ALL_TIMES)
        }
        (_, Ok(bytes)) => Value::Bytes(bytes),
    };
    SnapshotEntry { db: saved.db, key: saved.key(), value, expiry: saved.expiry, access: saved.access }
}

fn visit_long(part: &LongPart, visit: &mut dyn FnMut(Part<'_>)) {
    match part {
        LongPart::Field(saved) => {
            let field = saved.field();
            visit(Part::Field(Element::Bytes(field.name), field.value, field.expiry));
        }
        LongPart::Member(saved) => visit(Part::Member(Element::Bytes(saved.field().name))),
        LongPart::Scored(member, score) => visit(Part::Scored(Element::Bytes(member), *score)),
        LongPart::Item(body) => {
            visit(Part::Node { alone: true });
            visit(Part::Item(Element::Bytes(body)));
        }
        LongPart::Node(_) => unreachable!("it is read by the visitor"),
        LongPart::Block(body) => stream::emit_block(body, &mut |part| visit(Part::Stream(part))),
    }
}

/// Bytes of a part.
pub(crate) fn bytes_of(part: &Part<'_>) -> usize {
    let of = |element: &Element<'_>| if let Element::Bytes(bytes) = element { bytes.len() } else { 8 };
    match part {
        Part::Field(field, value, _) => of(field) + of(value),
        Part::Member(member) | Part::Scored(member, _) | Part::Item(member) => of(member),
        // The bytes of an entry are those of its block.
        Part::Stream(stream::StreamPart::Block(block)) => block.byte_count(),
        Part::Stream(stream::StreamPart::Group { name, .. } | stream::StreamPart::Consumer { name, .. }) => {
            name.len()
        }
        Part::Node { .. } | Part::Stream(_) => 0,
    }
}

/// Returns the cost of emitting an entry: a small collection is walked, at two bytes an element at least.
fn entry_weight(form: Form, key_bytes: usize, value_bytes: usize) -> u64 {
    weight_of(key_bytes + value_bytes) + if form.is_collection() { value_bytes as u64 / 2 } else { 0 }
}

/// Rest of what a step may emit, and the receivers of it.
pub(crate) struct Walk<'v> {
    steps: Steps,
    visit: &'v mut dyn FnMut(SnapshotItem<'_>),
    late: &'v mut Vec<Late>,
}

impl<'v> Walk<'v> {
    pub fn new(
        items_max: u64,
        visit: &'v mut dyn FnMut(SnapshotItem<'_>),
        late: &'v mut Vec<Late>,
    ) -> Walk<'v> {
        debug_assert!(late.is_empty(), "the last step's are emitted");
        Walk { steps: Steps::new(items_max.max(1)), visit, late }
    }

    fn is_spent(&self) -> bool {
        self.steps.is_spent() || !self.late.is_empty()
    }

    fn emit(&mut self, item: SnapshotItem<'_>) {
        self.steps.look(1);
        (self.visit)(item);
    }

    fn saved(&mut self, saved: Saved) {
        if saved.is_long() {
            self.steps.look(1);
            self.late.push(Late::Entry(saved));
        } else {
            self.steps.look(saved.weight(entry_weight) - 1);
            self.emit(SnapshotItem::Entry(entry_of(&saved)));
        }
    }

    /// Leaves a bundle to be emitted after the lock is released: the visitor reads it from disk.
    fn bundle(&mut self, bundle: SavedBundle) {
        self.steps.look(1);
        self.late.push(Late::Bundle(bundle));
    }

    /// Ends the current collection.
    fn end(&mut self) {
        if self.late.is_empty() {
            self.emit(SnapshotItem::End);
        } else {
            self.late.push(Late::End);
        }
    }
}

impl Receiver for Walk<'_> {
    fn part(&mut self, part: Part<'_>) {
        self.steps.look(weight_of(bytes_of(&part)) - 1);
        self.emit(SnapshotItem::Part(part));
    }

    fn long(&mut self, part: LongPart) {
        self.steps.look(1);
        self.late.push(Late::Part(part));
    }

    fn is_full(&self) -> bool {
        self.is_spent()
    }
}

impl Walk<'_> {
    /// Walks on until the step is spent. Returns true when all of the partition has been emitted.
    pub fn step(&mut self, partition: &mut Partition, place: &mut WalkPlace, databases: u16) -> bool {
        while !self.is_spent() {
            // A collection comes in one piece: what was saved meanwhile waits until it has ended.
            if self.emit_collection(partition)
                || self.emit_saved(partition)
                || self.begin_collection(partition)
            {
                continue;
            }
            if place.db == databases {
                return true;
            }
            if !self.emit_next_page(partition, place) {
                *place = WalkPlace { db: place.db + 1, ..WalkPlace::default() };
            }
        }
        false
    }

    /// Emits only what writers saved, after the current collection.
    pub fn step_over_saved(&mut self, partition: &mut Partition) {
        while !self.is_spent() && (self.emit_collection(partition) || self.emit_saved(partition)) {}
    }

    /// Begins the next of the collections that were met. Returns false if there is none.
    fn begin_collection(&mut self, partition: &mut Partition) -> bool {
        let Some(next) = partition.store.snapshot.pending.pop() else { return false };
        let root = partition.store.objects.get(next.number);
        let outline = root.cut.unwrap_or_else(|| root.outline());
        let Pending { db, ref key, expiry, access, .. } = next;
        self.emit(SnapshotItem::Begin { db, key, expiry, access, outline });
        partition.store.snapshot.keeping.push(next.number);
        partition.store.snapshot.collection = Some(next);
        true
    }

    /// Continues with the current collection. Returns false if there is none.
    fn emit_collection(&mut self, partition: &mut Partition) -> bool {
        let Some(mut pending) = partition.store.snapshot.collection.take() else { return false };
        let number = pending.number;
        let mut root = partition.store.objects.take(number);
        let structure = root.body.structure_mut();
        let done = loop {
            let done = structure.emit_step(&mut partition.store, &mut pending.cursor, self);
            self.steps.look(1);
            if done || self.is_spent() {
                break done;
            }
        };
        if done {
            structure.set_saving(false);
            (root.seen, root.cut) = (partition.store.snapshot.version(), None);
            self.end();
        } else {
            partition.store.snapshot.collection = Some(pending);
        }
        partition.store.objects.put(number, root);
        if done {
            let_go(partition, number);
        }
        true
    }

    /// Emits an entry that was saved. Returns false if there is none.
    fn emit_saved(&mut self, partition: &mut Partition) -> bool {
        if let Some(bundle) = partition.store.snapshot.pop_bundle() {
            self.bundle(bundle);
            return true;
        }
        let Some(saved) = partition.store.snapshot.pop_saved() else { return false };
        self.saved(saved);
        true
    }

    /// Emits the page at the walk's place, if it was not seen yet, and moves on. Returns false after the
    /// database's last.
    fn emit_next_page(&mut self, partition: &mut Partition, place: &mut WalkPlace) -> bool {
        self.steps.look(1);
        let db = Db(place.db);
        if !place.is_in_slot {
            let Some(slot) = next_slot(partition, db, place.slot) else { return false };
            *place = WalkPlace { db: place.db, slot, is_in_slot: true, ..WalkPlace::default() };
        }
        let slot = place.slot;
        let rest = partition.snapshot_tables(db).filter(|table| table.number >= place.table);
        let Some(table) = rest.min_by_key(|table| table.number) else {
            *place = WalkPlace { db: place.db, slot: slot + 1, ..WalkPlace::default() };
            return true;
        };
        if table.number != place.table {
            (place.table, place.page, place.bundle) = (table.number, 0, None);
        }
        let record = table.slot(&partition.store.heap, slot).record;
        if place.page >= record.pages {
            match self.emit_next_bundle(partition, db, (table.number, slot), place.bundle) {
                Some(address) => place.bundle = Some(address),
                None => (place.table, place.page, place.bundle) = (place.table + 1, 0, None),
            }
            return true;
        }
        let (page, _) = directory::get(&partition.store.heap, &record, place.page);
        place.page += 1;
        if let Some(page) =
            page.filter(|page| partition.store.heap.page(*page).version() != partition.store.snapshot.epoch)
        {
            self.emit_page(partition, db, page);
        }
        true
    }

    /// Emits a bundle that was not seen yet, from an address on. Where it is.
    fn emit_next_bundle(
        &mut self,
        partition: &mut Partition,
        db: Db,
        (number, place): (u32, usize),
        from: Option<BundleAddress>,
    ) -> Option<BundleAddress> {
        let epoch = partition.store.snapshot.version();
        let slot = Geometry::slot_at(partition.geometry.spread_of(partition.number, place));
        let table = partition.all_tables_mut().find(|table| table.number == number)?;
        let mut bundles = table.bundles_from(from.unwrap_or_else(|| BundleAddress::first_of(place)));
        let (address, bundle) = bundles.find(|(_, bundle)| bundle.version != epoch)?;
        let (name, reference, prints) = (address.name(), bundle.reference, bundle.prints().into());
        drop(bundles);
        let frozen = table.frozen.as_mut().expect("it has a bundle");
        frozen.get_mut(&address).expect("it was found").version = epoch;
        let expiring = frozen.expiring(&address);
        self.bundle(SavedBundle { db, slot, name, reference, prints, expiring });
        Some(address)
    }

    fn emit_page(&mut self, partition: &mut Partition, db: Db, page: Handle) {
        let view = partition.store.heap.page(page);
        let mode = partition.store.access;
        let entries = || {
            view.spots()
                .map(move |spot| (EntryBytes(view.entry(spot)), AccessStamp::of(mode, view, spot.index)))
        };
        if entries().map(|(entry, _)| weight_under_lock(&partition.store, entry)).sum::<u64>()
            > PAGE_WEIGHT_MAX
        {
            self.steps.look(view.len() as u64);
            return partition.store.save_page(db, page);
        }
        let mut objects = Vec::new();
        for (entry, access) in entries() {
            match entry.place() {
                Place::Object => {
                    let object = entry.body().expect("it is one");
                    objects.push(Pending::new(db, partition.store.key_of(entry), entry, access, object.raw));
                }
                // Emitted without the lock: the visitor shares the one, and reads the other.
                Place::Large | Place::Cold => self.saved(partition.store.saved_entry(db, entry, access)),
                _ => {
                    let (key, expiry) = (partition.store.key_of(entry), entry.expiry());
                    let value = Value::of(&partition.store, entry, ALL_TIMES);
                    self.steps.look(weight_under_lock(&partition.store, entry) - 1);
                    self.emit(SnapshotItem::Entry(SnapshotEntry { db, key, value, expiry, access }));
                }
            }
        }
        objects.into_iter().for_each(|object| partition.store.snapshot.pending.push(object));
        let epoch = partition.store.snapshot.epoch;
        crate::layout::page::set_version(partition.store.heap.page_mut(page), epoch);
    }
}

/// An object was emitted: what was kept of it for the snapshot may go, and all of it if it was removed
/// meanwhile.
fn let_go(partition: &mut Partition, number: u32) {
    partition.store.note_garbage(number);
    if partition.store.objects.doom_emitted(number) {
        partition.store.note_unfreed();
    }
}

/// The next slot from a place on that has keys in a database that was `db` at the cut. It passes the
/// partition's slots at most.
fn next_slot(partition: &Partition, db: Db, from: usize) -> Option<usize> {
    let mut from = from;
    loop {
        let tables = partition.snapshot_tables(db);
        let at = tables.filter_map(|table| table.next_slot(&partition.store.heap, from)).min()?;
        let spread = partition.geometry.spread_of(partition.number, at);
        if partition.store.snapshot.covers(|| Geometry::slot_at(spread)) {
            return Some(at);
        }
        from = at + 1;
    }
}

/// Returns the cost of emitting an entry under the lock.
fn weight_under_lock(store: &Store, entry: EntryBytes<'_>) -> u64 {
    if matches!(entry.place(), Place::Object | Place::Large | Place::Cold) {
        return 1;
    }
    entry_weight(entry.form(), store.key_of(entry).len(), store.value_bytes_of(entry).len())
}
