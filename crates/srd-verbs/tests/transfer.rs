//! Data between two processes over loopback, by C programs compiled against the installed headers.

mod built;

fn run(test: &str) {
    built::run("transfer", test, &[]);
}

#[test]
fn messages_of_every_length_arrive_whole() {
    run("sends");
}

#[test]
fn immediate_inline_and_gathered_data_arrive() {
    run("forms");
}

#[test]
fn rdma_writes_and_reads_move_what_they_should() {
    run("rdma");
}

#[test]
fn an_unsolicited_write_takes_no_receive() {
    run("rdma_unsolicited");
}

#[test]
fn a_sender_without_address_handle_is_named_by_its_gid() {
    run("stranger");
}

#[test]
fn datagrams_leave_room_for_the_routing_header() {
    run("datagrams");
}

#[test]
fn thousands_of_messages_both_ways_arrive_exactly_once() {
    run("floods");
}

#[test]
fn they_arrive_exactly_once_when_packets_are_lost() {
    built::run("transfer", "floods", &[("SRD_FAULT", "loss=0.02,dup=0.01,reorder=0.05,seed=7")]);
}
