//! At a terminal, under an interactive shell with job control.

use std::io::Write as _;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use super::*;

/// A shell at a terminal, and what is typed there.
struct Terminal {
    keys: fs::File,
    shell: Child,
    screen: Receiver<Vec<u8>>,
    seen: String,
}

impl Terminal {
    fn new(bench: &Bench) -> Terminal {
        let keys =
            fs::File::from(openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap());
        grantpt(&keys).unwrap();
        unlockpt(&keys).unwrap();
        let name = ptsname(&keys, Vec::new()).unwrap();
        let side =
            || fs::File::options().read(true).write(true).open(OsStr::new(name.to_str().unwrap())).unwrap();
        let mut shell = Command::new("setsid");
        shell.args(["--ctty", "--wait", "bash", "--norc", "--noprofile", "--noediting", "-i"]);
        shell.env("LEASEHOLD_ON", bench.url()).env("PS1", "$ ").env("TERM", "dumb").env("HISTFILE", "");
        shell.env("LEASEHOLD", env!("CARGO_BIN_EXE_leasehold")).current_dir(bench.dir.path());
        let shell = shell.stdin(side()).stdout(side()).stderr(side()).process_group(0).spawn().unwrap();
        let (sender, screen) = channel();
        let mut output = keys.try_clone().unwrap();
        std::thread::spawn(move || {
            let mut bytes = [0; 1024];
            // Reading fails when the last process at the terminal has ended.
            while let Ok(length @ 1..) = output.read(&mut bytes) {
                if sender.send(bytes[..length].to_vec()).is_err() {
                    break;
                }
            }
        });
        let mut terminal = Terminal { keys, shell, screen, seen: String::new() };
        terminal.shows("$ ");
        terminal
    }

    fn types(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until this is on the screen, after all that was waited for before.
    #[track_caller]
    fn shows(&mut self, text: &str) -> String {
        let started = Instant::now();
        loop {
            if let Some(place) = self.seen.find(text) {
                let rest = self.seen.split_off(place + text.len());
                return std::mem::replace(&mut self.seen, rest);
            }
            let left = LIMIT.saturating_sub(started.elapsed());
            match self.screen.recv_timeout(left) {
                Ok(bytes) => self.seen.push_str(&String::from_utf8_lossy(&bytes)),
                Err(_) => panic!("no `{text}` on the screen: {:?}", self.seen),
            }
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // The shell's end hangs up the terminal, and what still runs there is ended with it.
        let children = format!("/proc/{0}/task/{0}/children", self.shell.id());
        let children = fs::read_to_string(children).unwrap_or_default();
        for pid in children.split(' ').filter_map(|pid| pid.parse().ok()).filter_map(Pid::from_raw) {
            kill_process(pid, Signal::KILL).ok();
        }
        kill_process_group(Pid::from_raw(self.shell.id().cast_signed()).unwrap(), Signal::KILL).ok();
        self.shell.wait().ok();
    }
}

const CTRL_C: &str = "\x03";
const CTRL_Z: &str = "\x1a";
const CTRL_BACKSLASH: &str = "\x1c";

#[test]
fn keys_and_job_control_work_as_without_leasehold() {
    as_without_leasehold(&Bench::new());
}

/// Words in what is typed are written so that they can be told from what is printed: `u''p` prints
/// `up`.
pub(super) fn as_without_leasehold(bench: &Bench) {
    let mut terminal = Terminal::new(bench);

    // A key ends the command, and its code is that of the signal.
    for (key, code) in [(CTRL_C, 130), (CTRL_BACKSLASH, 131)] {
        terminal.types("$LEASEHOLD run a -- sh -c 'echo u''p; exec sleep 60'; echo code=$?\n");
        terminal.shows("up\r\n");
        terminal.types(key);
        terminal.shows(&format!("code={code}"));
    }

    // It ends the script that leasehold is part of, too.
    terminal.types("sh -c '$LEASEHOLD run a -- sh -c \"echo u\"\"p; exec sleep 60\"; echo went o''n'\n");
    terminal.shows("up\r\n");
    terminal.types(CTRL_C);
    terminal.shows("$ ");
    terminal.types("echo code=$?\n");
    let screen = terminal.shows("code=130");
    assert!(!screen.contains("went on"), "{screen}");

    // A command that handles the key goes on. The key may interrupt its `read`.
    terminal.types(
        "$LEASEHOLD run a -- sh -c 'trap \"echo cau\"\"ght\" INT; echo u''p; until read x; do :; done; echo got-$x'\n",
    );
    terminal.shows("up\r\n");
    terminal.types(CTRL_C);
    terminal.shows("caught");
    terminal.types("one\n");
    terminal.shows("got-one");

    // Stopped, and back in the foreground, where it reads from the terminal.
    terminal.types("$LEASEHOLD run a -- sh -c 'echo pid=$$; echo u''p; read line; echo got-$line'\n");
    let screen = terminal.shows("up\r\n");
    let number = screen.rsplit("pid=").next().and_then(|rest| rest.lines().next()).unwrap();
    let command = Pid::from_raw(number.parse().unwrap()).unwrap();
    terminal.types(CTRL_Z);
    terminal.shows("Stopped");
    terminal.shows("$ ");
    // The shell goes on when its own child has stopped. Until the command has too, it reads what is
    // typed.
    until("the command to be stopped", || stat(command).is_some_and(|stat| stat[0] == "T"));
    terminal.types("echo code=$?\n");
    terminal.shows("code=148");
    terminal.types("jobs\n");
    terminal.shows("Stopped");
    terminal.shows("$ ");
    terminal.types("fg\n");
    terminal.shows("run a");
    terminal.types("it\n");
    terminal.shows("got-it");

    // Stopped, and on in the background.
    terminal
        .types("$LEASEHOLD run a -- sh -c 'echo u''p; until [ -e go ]; do sleep 0.02; done; echo do''ne'\n");
    terminal.shows("up\r\n");
    terminal.types(CTRL_Z);
    terminal.shows("Stopped");
    terminal.shows("$ ");
    terminal.types("bg\n");
    terminal.shows("&");
    terminal.types("touch go; wait; echo code=$?\n");
    terminal.shows("done");
    terminal.shows("code=0");

    // Started in the background, then brought to the front, where it may read and can be ended.
    terminal.types("$LEASEHOLD run a -- sh -c 'echo u''p; read line; echo got-$line; exec sleep 60' &\n");
    terminal.shows("up\r\n");
    // A job in the background that reads from the terminal is stopped.
    terminal.types("until [ -n \"$(jobs -s)\" ]; do sleep 0.02; done; fg; echo code=$?\n");
    terminal.shows("run a");
    terminal.types("this\n");
    terminal.shows("got-this");
    terminal.types(CTRL_C);
    terminal.shows("code=130");

    // Others in the pipeline have the terminal as well: a pager reads keys from it.
    terminal.types(
        "$LEASEHOLD run a -- echo pa''ge | sh -c 'cat; read key </dev/tty; echo key-$key'; echo code=$?\n",
    );
    terminal.shows("page\r\n");
    terminal.types("q\n");
    terminal.shows("key-q");
    terminal.shows("code=0");
}
