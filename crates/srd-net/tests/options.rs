//! What the environment says is read, refused or warned about, never ignored.

use srd_device::StagedFaults;
use srd_net::{
    Address, FaultPlan, LogLevel, Options, OptionsError, ProgressMode, ReadBy, VARIABLES, Warning, Wire,
};
use srd_proto::{ControllerKind, SelectorKind};
use srd_wire::{BitRate, Nanos};

fn read(vars: &[(&str, &str)]) -> Result<(Options, Vec<Warning>), OptionsError> {
    Options::from_vars(vars.iter().map(|&(name, value)| (name.into(), value.into())))
}

#[test]
fn every_variable_is_read() {
    let fault = "loss=0.02,dup=0.01,reorder=0.05,corrupt=0.001,delay_us=7,blackhole=3,seed=1,fail=13@7,panic_call=20,panic_thread=30";
    let mut staged = StagedFaults::default();
    staged.seed = 1;
    staged.set("fail", "13@7").expect("a word of these").unwrap();
    let vars = [
        ("SRD_ADDR", "fd00::7"),
        ("SRD_PORT_BASE", "20000"),
        ("SRD_PATHS", "256"),
        ("SRD_MTU", "1500"),
        ("SRD_KEY_FILE", "/etc/srd.key"),
        ("SRD_LOG", "debug"),
        ("SRD_STATS", "/tmp/srd.%p.json"),
        ("SRD_FAULT", fault),
        ("SRD_SELECTOR", "oblivious"),
        ("SRD_CC", "fixed:65536"),
        ("SRD_LINE_RATE_GBPS", "12.5"),
        ("SRD_BASE_RTT_US", "40"),
        ("SRD_PEER_TIMEOUT_S", "2.5"),
        ("SRD_RCVBUF", "1000000"),
        ("SRD_PROGRESS", "inline"),
        ("SRD_WIRE", "auto"),
        ("SRD_ENGINES", "4"),
        ("SRD_SHM", "off"),
        ("SRD_TOP", "off"),
    ];
    let mut names: Vec<_> = vars.iter().map(|(name, _)| *name).collect();
    let mut known: Vec<_> =
        VARIABLES.iter().filter(|known| known.read_by == ReadBy::Transport).map(|known| known.name).collect();
    names.sort();
    known.sort();
    assert_eq!(names, known, "a variable is not tested");
    let (options, warnings) = read(&vars).unwrap();
    assert_eq!(warnings, []);
    let wanted = Options {
        addr: Address::Ip("fd00::7".parse().unwrap()),
        port_base: 20_000,
        paths: 256,
        mtu: Some(1500),
        key_file: Some("/etc/srd.key".into()),
        log: LogLevel::Debug,
        stats: Some("/tmp/srd.%p.json".into()),
        fault: Some(FaultPlan {
            loss: 0.02,
            dup: 0.01,
            reorder: 0.05,
            corrupt: 0.001,
            delay_us: 7,
            blackhole: Some(3),
            panic_call: Some(20),
            panic_thread: Some(30),
            staged: staged.clone(),
            seed: 1,
            text: fault.into(),
        }),
        selector: SelectorKind::Oblivious,
        cc: ControllerKind::Fixed,
        fixed_window_bytes: 65_536,
        line_rate: Some(BitRate(12_500_000_000)),
        base_rtt: Some(Nanos::from_micros(40)),
        peer_timeout: Nanos::from_millis(2500),
        rcvbuf: 1_000_000,
        progress: ProgressMode::Inline,
        wire: Wire::Auto,
        engines: 4,
        shm: false,
        top: false,
        ..Options::default()
    };
    assert_eq!(options, wanted);
}

#[test]
fn what_is_not_set_has_its_default() {
    let (options, warnings) = read(&[("HOME", "/root"), ("PATH", "/bin")]).unwrap();
    assert_eq!((options, warnings), (Options::default(), vec![]));
    assert_eq!(read(&[("SRD_ADDR", "ib0")]).unwrap().0.addr, Address::Interface("ib0".into()));
}

#[test]
fn an_unknown_variable_is_named_with_the_one_that_was_meant() {
    for (name, nearest) in [
        ("SRD_ADDRESS", Some("SRD_ADDR")),
        ("SRD_PATH", Some("SRD_PATHS")),
        ("SRD_PORTBASE", Some("SRD_PORT_BASE")),
        ("SRD_SELEKTOR", Some("SRD_SELECTOR")),
        ("SRD_SOMETHING_ELSE_ALTOGETHER", None),
    ] {
        let (options, warnings) = read(&[(name, "1")]).unwrap();
        assert_eq!(options, Options::default());
        assert_eq!(warnings, [Warning { name: name.into(), nearest }]);
        let text = warnings[0].to_string();
        assert!(text.contains(name) && text.contains(nearest.unwrap_or("srd env")), "{text}");
    }
}

#[test]
fn variables_of_other_parts_are_known() {
    for known in VARIABLES {
        assert!(known.name.starts_with("SRD_"), "{}", known.name);
        assert!(![known.meaning, known.default, known.allowed].contains(&""), "{}", known.name);
        if known.read_by != ReadBy::Transport {
            assert_eq!(read(&[(known.name, "anything")]).unwrap().1, []);
        }
    }
}

#[test]
fn an_empty_list_of_faults_is_none() {
    for value in ["", "  "] {
        assert_eq!(read(&[("SRD_FAULT", value)]).unwrap().0, Options::default());
    }
}

#[test]
fn an_impossible_value_is_refused_with_what_is_possible() {
    for (name, value) in [
        ("SRD_ADDR", "0.0.0.0"),
        ("SRD_ADDR", "224.0.0.1"),
        ("SRD_ADDR", "an interface name that is too long"),
        ("SRD_ADDR", ""),
        ("SRD_PORT_BASE", "80"),
        ("SRD_PORT_BASE", "65025"),
        ("SRD_PATHS", "0"),
        ("SRD_PATHS", "257"),
        ("SRD_PATHS", "many"),
        ("SRD_MTU", "500"),
        ("SRD_MTU", "65536"),
        ("SRD_KEY_FILE", ""),
        ("SRD_LOG", "verbose"),
        ("SRD_STATS", ""),
        ("SRD_FAULT", "loss=1.5"),
        ("SRD_FAULT", "lost=0.5"),
        ("SRD_FAULT", "@/no/such/file"),
        ("SRD_SELECTOR", "random"),
        ("SRD_CC", "cubic"),
        ("SRD_CC", "fixed:0"),
        ("SRD_CC", "fixed:"),
        ("SRD_LINE_RATE_GBPS", "0"),
        ("SRD_LINE_RATE_GBPS", "NaN"),
        ("SRD_BASE_RTT_US", "0"),
        ("SRD_PEER_TIMEOUT_S", "-1"),
        ("SRD_RCVBUF", "1000"),
        ("SRD_PROGRESS", "spin"),
    ] {
        let error = read(&[(name, value)]).expect_err(&format!("{name}={value}"));
        let allowed = VARIABLES.iter().find(|known| known.name == name).unwrap().allowed;
        let text = error.to_string();
        assert!(text.contains(name) && text.contains(value) && text.contains(allowed), "{text}");
    }
}
