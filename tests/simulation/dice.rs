//! Where all chance comes from: one number per run.
//!
//! A run must be the same each time. The library draws the ids of its clients from the operating
//! system, and the hash maps of the standard library draw the order of their entries from there; so
//! on the threads that run simulations the operating system's source is replaced by one that the
//! seed decides.

use std::cell::Cell;

/// A source of numbers that are the same for the same seed, everywhere (splitmix64).
#[derive(Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Dice {
        Dice(mix(seed))
    }

    pub(crate) fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Another source, which does not depend on what is drawn from this one later.
    pub(crate) fn split(&mut self) -> Dice {
        Dice(self.roll())
    }

    /// Below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.roll() % end
    }

    pub(crate) fn between(&mut self, first: u64, last: u64) -> u64 {
        first + self.below(last - first + 1)
    }

    pub(crate) fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::try_from(self.below(from.len() as u64)).expect("an index")]
    }

    /// One of some things, each as often as the number beside it says.
    pub(crate) fn weigh<T: Copy>(&mut self, from: &[(u64, T)]) -> T {
        let mut at = self.below(from.iter().map(|(weight, _)| weight).sum());
        for &(weight, what) in from {
            if at < weight {
                return what;
            }
            at -= weight;
        }
        unreachable!("below the sum")
    }
}

fn mix(mut number: u64) -> u64 {
    number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

thread_local! {
    /// What the operating system "draws" on this thread; `None` for its own numbers.
    static DRAWN: Cell<Option<u64>> = const { Cell::new(None) };
}

/// From here on this thread's operating system draws from the seed.
pub(crate) fn seed_the_system(seed: u64) {
    DRAWN.set(Some(seed));
}

/// Takes the place of the C library's function in this program.
///
/// # Safety
///
/// As for the C library's: `buffer` has room for `length` bytes.
#[expect(unsafe_code, reason = "the only place where all draws of a process can be decided")]
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn getrandom(
    buffer: *mut libc::c_void,
    length: libc::size_t,
    flags: libc::c_uint,
) -> libc::ssize_t {
    let Some(mut state) = DRAWN.get() else {
        // SAFETY: passed on as it came.
        let drawn = unsafe { libc::syscall(libc::SYS_getrandom, buffer, length, flags) };
        return libc::ssize_t::try_from(drawn).unwrap_or(-1);
    };
    for at in 0..length {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        // SAFETY: below `length`, for which there is room.
        unsafe { buffer.cast::<u8>().add(at).write(mix(state).to_le_bytes()[0]) };
    }
    DRAWN.set(Some(state));
    libc::ssize_t::try_from(length).unwrap_or(libc::ssize_t::MAX)
}
