//! A disk in memory that fails as disks do: by a seed, at any call, and the same way again.
//!
//! ```text
//!   call n: ... stop here?  ->  machine stopped: every call fails until `restart`
//!           ... a fault of the plan?  ->  the error, and what it does to the pages
//!           else the cached images change; a sync copies them to the durable ones
//!   restart:    each file and each name is what the platter may hold (image.rs, names.rs)
//!   kill:       only the process ends: the cache stays
//! ```
//! A call that changes a file under a plan with `writeback_one_in` may also make older changes durable.
//!
//! Invariants: the same seed, plan and calls give the same bytes. Bytes that were synced before a crash are
//! there after it, unless they were changed since.

mod image;
mod names;
mod plan;

pub use plan::{Call, Damage, Fault, FullDisk, Plan, RandomFault};

use crate::{Disk, File, Lock, Mode};
use image::Image;
use isotherm_stdx::Prng;
use names::{Inode, Names, Node};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Component, Path};
use std::sync::{Arc, Mutex, MutexGuard};

/// Unit that a disk writes in one piece.
pub const SECTOR_BYTES: usize = 512;

/// A test that writes more has a bug; the system's answer is the same.
const FILE_BYTES_MAX: u64 = 1 << 30;

#[derive(Clone)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
}

struct State {
    plan: Plan,
    prng: Prng,
    /// Calls since the plan began.
    calls: u64,
    is_stopped: bool,
    /// A test looks at what is there.
    is_looked_at: bool,
    /// Handles of processes before this one are closed.
    process: u64,
    names: Names,
    images: BTreeMap<Inode, Image>,
    inode_next: Inode,
    /// Files that this process has locked.
    locked: BTreeSet<Inode>,
}

struct SimLock {
    state: Arc<Mutex<State>>,
    inode: Inode,
    process: u64,
}

impl Lock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        let mut state = lock(&self.state);
        if state.process == self.process {
            state.locked.remove(&self.inode);
        }
    }
}

struct SimFile {
    state: Arc<Mutex<State>>,
    inode: Inode,
    process: u64,
    is_writable: bool,
}

impl SimDisk {
    /// An empty disk.
    pub fn new(seed: u64, plan: Plan) -> SimDisk {
        let state = State {
            plan,
            prng: Prng::new(seed),
            calls: 0,
            is_stopped: false,
            is_looked_at: false,
            process: 0,
            names: Names::default(),
            images: BTreeMap::new(),
            inode_next: 0,
            locked: BTreeSet::new(),
        };
        SimDisk { state: Arc::new(Mutex::new(state)) }
    }

    /// Power fails if it has not already, and the machine starts again under another plan.
    pub fn restart(&self, plan: Plan) {
        let mut state = self.state();
        if !state.is_stopped {
            state.crash();
        }
        state.begin(plan);
    }

    /// The process ends and another begins. Written bytes stay written, synced or not.
    pub fn kill(&self, plan: Plan) {
        self.state().begin(plan);
    }

    /// Sets another plan and counts calls from 0 again. Files stay open.
    pub fn set_plan(&self, plan: Plan) {
        let mut state = self.state();
        state.plan = plan;
        state.calls = 0;
    }

    /// Runs `look`, whose reads do not count as calls of the plan: a test looks at the state of the disk.
    pub fn look<R>(&self, look: impl FnOnce() -> R) -> R {
        self.state().is_looked_at = true;
        let seen = look();
        self.state().is_looked_at = false;
        seen
    }

    /// The crash of the plan has happened: every call fails until `restart`.
    pub fn is_stopped(&self) -> bool {
        self.state().is_stopped
    }

    /// Calls under this plan.
    pub fn calls(&self) -> u64 {
        self.state().calls
    }

    /// Returns the bytes of all files that have a name.
    pub fn used_bytes(&self) -> u64 {
        self.state().used_bytes()
    }

    pub fn check_invariants(&self) {
        let state = self.state();
        state.names.check_invariants();
        for inode in state.names.inodes() {
            assert!(state.images.contains_key(&inode), "a name of no file");
        }
        state.images.values().for_each(Image::check_invariants);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

/// A panic of a test under the lock leaves a state that is as good as before.
fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn error(errno: Errno) -> io::Error {
    io::Error::from_raw_os_error(errno.raw_os_error())
}

fn stopped() -> io::Error {
    io::Error::other("the simulated machine has stopped")
}

impl State {
    fn begin(&mut self, plan: Plan) {
        self.plan = plan;
        self.calls = 0;
        self.is_stopped = false;
        self.process += 1;
        self.locked.clear();
    }

    fn crash(&mut self) {
        let State { names, images, prng, plan, .. } = self;
        names.crash(plan.damage.reordered, prng);
        let living: Vec<Inode> = names.inodes().collect();
        images.retain(|inode, _| living.contains(inode));
        images.values_mut().for_each(|image| image.crash(plan.damage, prng));
        self.is_stopped = true;
    }

    /// Makes a call. `run` gets the fault that is to happen, unless the call fails without doing anything.
    fn call<T>(
        &mut self,
        call: Call,
        run: impl FnOnce(&mut State, Option<Fault>) -> io::Result<T>,
    ) -> io::Result<T> {
        if self.is_stopped {
            return Err(stopped());
        }
        if self.is_looked_at {
            assert!(!call.changes(), "who looks changes nothing: {call:?}");
            return run(self, None);
        }
        let number = self.calls;
        self.calls += 1;
        let stops = self.plan.crash_at == Some(number);
        if stops && self.prng.one_in(2) {
            self.crash();
            return Err(stopped());
        }
        if call.changes() && self.plan.is_read_only {
            return Err(error(Errno::ROFS));
        }
        let result = match self.fault(call, number) {
            Some(Fault::Interrupted) => Err(error(Errno::INTR)),
            Some(fault) if !matches!(call, Call::Write | Call::Sync) && fault != Fault::Short => {
                Err(error(fault.errno()))
            }
            fault => run(self, fault),
        };
        if self.plan.writeback_one_in > 0 && self.prng.one_in(self.plan.writeback_one_in) {
            let State { images, prng, .. } = self;
            images.values_mut().for_each(|image| image.write_back_some(prng));
        }
        if stops {
            self.crash();
            return Err(stopped());
        }
        result
    }

    fn fault(&mut self, call: Call, number: u64) -> Option<Fault> {
        let State { plan, prng, .. } = self;
        let planned = plan.faults.iter().find(|(at, _)| *at == number).map(|(_, fault)| *fault);
        let drawn =
            plan.random_faults.iter().find(|random| random.call == call && prng.one_in(random.one_in));
        planned.or(drawn.map(|random| random.fault))
    }

    fn used_bytes(&self) -> u64 {
        self.images.values().map(Image::len).sum()
    }

    /// Returns the length to which a file may grow under the quota.
    fn len_max(&self, inode: Inode) -> u64 {
        match self.plan.quota_bytes {
            Some(quota) => {
                let own = self.images[&inode].len();
                own + quota.saturating_sub(self.used_bytes())
            }
            None => FILE_BYTES_MAX,
        }
    }

    fn image(&mut self, inode: Inode) -> &mut Image {
        self.images.get_mut(&inode).expect("a file has an image while it is named or open")
    }

    fn open(&mut self, name: &str, mode: Mode) -> io::Result<Inode> {
        let creates = matches!(mode, Mode::Create | Mode::Truncate | Mode::CreateNew);
        let refuses_change = || self.plan.is_read_only && mode != Mode::Read;
        match self.names.get(name) {
            Some(Node::Folder) => Err(error(Errno::ISDIR)),
            Some(Node::File(_)) if mode == Mode::CreateNew => Err(error(Errno::EXIST)),
            _ if refuses_change() => Err(error(Errno::ROFS)),
            Some(Node::File(inode)) => {
                if mode == Mode::Truncate {
                    self.image(inode).set_len(0);
                }
                Ok(inode)
            }
            None if !creates => Err(error(Errno::NOENT)),
            None => {
                self.require_folder(names::parent(name))?;
                let inode = self.inode_next;
                self.inode_next += 1;
                self.images.insert(inode, Image::default());
                self.names.link(name, Node::File(inode));
                Ok(inode)
            }
        }
    }

    fn require_folder(&self, name: &str) -> io::Result<()> {
        match self.names.get(name) {
            Some(Node::Folder) => Ok(()),
            Some(Node::File(_)) => Err(error(Errno::NOTDIR)),
            None => Err(error(Errno::NOENT)),
        }
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        self.require_folder(names::parent(to))?;
        match (self.names.get(from), self.names.get(to)) {
            (None, _) => Err(error(Errno::NOENT)),
            (Some(Node::Folder), _) => Err(error(Errno::INVAL)),
            (_, Some(Node::Folder)) => Err(error(Errno::ISDIR)),
            (Some(node), Some(target)) if node == target => Ok(()),
            _ => {
                self.names.rename(from, to);
                Ok(())
            }
        }
    }

    fn write(&mut self, inode: Inode, bytes: &[u8], at: u64, fault: Option<Fault>) -> io::Result<usize> {
        let mut room = bytes.len();
        if at.saturating_add(bytes.len() as u64) > FILE_BYTES_MAX {
            return Err(error(Errno::FBIG));
        }
        if self.plan.full_disk == FullDisk::AtWrite {
            room = room.min(self.len_max(inode).saturating_sub(at) as usize);
        }
        match fault {
            Some(Fault::Short) => room = room.min(self.prng.below(bytes.len() as u64) as usize + 1),
            // Half of what was written may be there all the same.
            Some(fault) => {
                let accepted = self.prng.below(room as u64 + 1) as usize;
                self.image(inode).write(&bytes[..accepted], at);
                return Err(error(fault.errno()));
            }
            None => {}
        }
        if room == 0 && !bytes.is_empty() {
            return Err(error(Errno::NOSPC));
        }
        self.image(inode).write(&bytes[..room], at);
        Ok(room)
    }

    fn sync(&mut self, inode: Inode, fault: Option<Fault>) -> io::Result<()> {
        let is_full = self.plan.full_disk == FullDisk::AtSync
            && self.plan.quota_bytes.is_some_and(|quota| self.used_bytes() > quota);
        let fault = fault.filter(|fault| *fault != Fault::Short).or(is_full.then_some(Fault::NoSpace));
        let State { images, prng, .. } = self;
        let image = images.get_mut(&inode).expect("it is open");
        match fault {
            None => {
                image.sync();
                Ok(())
            }
            Some(fault) => {
                image.fail_sync(prng);
                Err(error(fault.errno()))
            }
        }
    }
}

impl Disk for SimDisk {
    fn open(&self, path: &Path, mode: Mode) -> io::Result<Arc<dyn File>> {
        let mut state = self.state();
        let inode = state.call(Call::Open, |state, _| state.open(&name(path), mode))?;
        let (state, process) = (self.state.clone(), state.process);
        Ok(Arc::new(SimFile { state, inode, process, is_writable: mode != Mode::Read }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.state().call(Call::Rename, |state, _| state.rename(&name(from), &name(to)))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.state().call(Call::Remove, |state, _| {
            let name = name(path);
            match state.names.get(&name) {
                None => Err(error(Errno::NOENT)),
                Some(Node::Folder) => Err(error(Errno::ISDIR)),
                Some(Node::File(_)) => {
                    state.names.unlink(&name);
                    Ok(())
                }
            }
        })
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        self.state().call(Call::List, |state, _| {
            let folder = name(folder);
            state.require_folder(&folder)?;
            Ok(state.names.children(&folder).map(String::from).collect())
        })
    }

    fn create_dir(&self, folder: &Path) -> io::Result<()> {
        self.state().call(Call::CreateDir, |state, _| {
            let folder = name(folder);
            state.require_folder(names::parent(&folder))?;
            if state.names.get(&folder).is_some() {
                return Err(error(Errno::EXIST));
            }
            state.names.link(&folder, Node::Folder);
            Ok(())
        })
    }

    fn sync_dir(&self, folder: &Path) -> io::Result<()> {
        self.state().call(Call::SyncDir, |state, _| {
            let folder = name(folder);
            state.require_folder(&folder)?;
            state.names.sync(&folder);
            Ok(())
        })
    }

    fn free_bytes(&self, _folder: &Path) -> io::Result<u64> {
        self.state().call(Call::FreeBytes, |state, _| {
            let quota = state.plan.quota_bytes.unwrap_or(FILE_BYTES_MAX);
            Ok(quota.saturating_sub(state.used_bytes()))
        })
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Lock>> {
        let mut state = self.state();
        let inode = state.call(Call::Open, |state, _| state.open(&name(path), Mode::Create))?;
        if !state.locked.insert(inode) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let process = state.process;
        drop(state);
        Ok(Box::new(SimLock { state: Arc::clone(&self.state), inode, process }))
    }
}

/// Returns the single spelling of a path: without `.`, and with relative paths beginning at the root.
fn name(path: &Path) -> String {
    let parts = path.components().filter_map(|part| match part {
        Component::Normal(part) => Some(part.to_string_lossy()),
        Component::CurDir | Component::RootDir | Component::Prefix(_) => None,
        Component::ParentDir => panic!("no program of ours names a parent folder by `..`"),
    });
    parts.collect::<Vec<_>>().join("/")
}

impl SimFile {
    /// Makes a call on a file that this process has opened.
    fn call<T>(
        &self,
        call: Call,
        run: impl FnOnce(&mut State, Option<Fault>) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut state = lock(&self.state);
        if state.process != self.process || call.changes() && !self.is_writable {
            return Err(error(Errno::BADF));
        }
        state.call(call, run)
    }
}

impl File for SimFile {
    /// No call of the plan: it cannot fail in a way that matters.
    fn len(&self) -> io::Result<u64> {
        let state = lock(&self.state);
        if state.is_stopped {
            return Err(stopped());
        }
        state.images.get(&self.inode).map(Image::len).ok_or_else(|| error(Errno::BADF))
    }

    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<usize> {
        self.call(Call::Read, |state, fault| {
            let room = match fault {
                Some(Fault::Short) => bytes.len().div_ceil(2),
                _ => bytes.len(),
            };
            Ok(state.image(self.inode).read(&mut bytes[..room], at))
        })
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<usize> {
        self.call(Call::Write, |state, fault| state.write(self.inode, bytes, at, fault))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.call(Call::SetLen, |state, _| {
            if len > FILE_BYTES_MAX {
                return Err(error(Errno::FBIG));
            }
            state.image(self.inode).set_len(len);
            Ok(())
        })
    }

    fn allocate(&self, at: u64, len: u64) -> io::Result<()> {
        self.call(Call::Allocate, |state, _| {
            let end = at.saturating_add(len);
            if end > state.len_max(self.inode) {
                return Err(error(if end > FILE_BYTES_MAX { Errno::FBIG } else { Errno::NOSPC }));
            }
            let image = state.image(self.inode);
            image.set_len(end.max(image.len()));
            Ok(())
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        self.call(Call::Sync, |state, fault| state.sync(self.inode, fault))
    }

    fn sync_all(&self) -> io::Result<()> {
        self.sync_data()
    }
}
