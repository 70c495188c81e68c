//! What a forked child must leave alone.
//!
//! A child that was forked without exec has a copy of everything that its parent has. Some of it
//! stands for something outside: the file of a seat, the name of a socket, the event queue of the
//! parent's runtime, the store's place in the driver's table. To clean that up is the parent's
//! business. A child may keep its copy of a client or drop it; either does nothing. Closing a
//! descriptor is harmless: what it locks stays locked while the parent has it open.

use std::ops::Deref;

/// The number of this process.
pub(super) fn pid() -> u32 {
    rustix::process::getpid().as_raw_pid().unsigned_abs()
}

/// A value that is dropped only in the process that made it. A forked child leaks its copy.
#[derive(Debug)]
pub(super) struct NotInChild<T> {
    /// Gone only when it is dropped.
    value: Option<T>,
    pid: u32,
}

impl<T> NotInChild<T> {
    pub(super) fn new(value: T) -> NotInChild<T> {
        NotInChild { value: Some(value), pid: pid() }
    }

    /// True in the process that made it.
    pub(super) fn at_home(&self) -> bool {
        self.pid == pid()
    }
}

impl<T> Deref for NotInChild<T> {
    type Target = T;

    fn deref(&self) -> &T {
        match &self.value {
            Some(value) => value,
            None => unreachable!("taken only when it is dropped"),
        }
    }
}

impl<T> Drop for NotInChild<T> {
    fn drop(&mut self) {
        if !self.at_home() {
            std::mem::forget(self.value.take());
        }
    }
}
