//! Processes of a host between which the system forbids copies (`process_vm_readv`): long messages use the network then,
//! which is said once. The process is this test program again, with a filter that it puts on itself.

mod rig;

use rig::*;
use std::process::Command;

const FORBIDDEN_FROM: &str = "SRD_TEST_COPIES_FORBIDDEN_FROM";
const LENGTHS: [usize; 4] = [100, 60_000, 300_000, 3_000_000];

/// From now on the system refuses that call, to all threads of this process.
fn forbid_copies() {
    let instruction = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut program = [
        // The number of the call is the first word of what is filtered.
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, libc::SYS_process_vm_readv as u32),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: a filter that lives until the call is over.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let all_threads = libc::SECCOMP_FILTER_FLAG_TSYNC;
        let set = libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, all_threads, &filter);
        assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
    }
}

/// The part of the other process.
#[test]
fn other_process() {
    let Ok(from) = std::env::var(FORBIDDEN_FROM) else { return };
    if from == "start" {
        forbid_copies();
    }
    let rig = Rig::new(0);
    let (a, b, to_b, _) = rig.pair(0);
    for round in 0..3 {
        for (i, len) in LENGTHS.into_iter().enumerate() {
            let (from, mut to) = (pattern(i + round, len), vec![0; len]);
            assert_eq!(b.ep.recv(&mut to, 1), 0);
            assert_eq!(a.ep.send(&from, to_b, 2), 0);
            a.cq.next();
            b.cq.next();
            assert!(from == to, "{len} bytes");
        }
        if from == "later" && round == 0 {
            forbid_copies();
        }
    }
    a.close();
    b.close();
    rig.close();
}

#[test]
fn where_copies_are_forbidden_long_messages_use_the_network_and_that_is_said_once() {
    for (from, times) in [("never", 0), ("start", 1), ("later", 1)] {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["other_process", "--exact", "--nocapture"]).env(FORBIDDEN_FROM, from);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "forbidden from {from}: {}\n{said}", output.status);
        let warnings = said.matches("long messages between processes of this host use the network").count();
        assert_eq!(warnings, times, "forbidden from {from}:\n{said}");
    }
}
