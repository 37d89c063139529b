-- A Wireshark dissector for Scalable Reliable Datagram as OpenSRD sends it: docs/SPEC.md, version 1.
-- How to install it, and what its fields are called: docs/WIRESHARK.md.
--
-- A packet is judged as a receiver judges it (crates/srd-wire/src/codec.rs), in the same order: what would be refused has an
-- expert info and the cause in `srd.refused`, and what can be read before that point is shown. A sealed packet is shown as
-- sealed. Where the kernel was asked to cut a buffer into datagrams (UDP GSO), a capture on the sending host has them in one
-- piece; they are taken apart.

local VERSION = 1
local COMMON, HELLO, ACK, ECHO, WORD, PROBE, RESET, DATA = 12, 28, 20, 12, 8, 12, 4, 28
local TAG, COUNTER, INCARNATION = 16, 8, 8
local MOST_ECHOES, MOST_WORDS = 8, 16
local LEAST_DATAGRAM = 468 -- all headers, and a block of 128 bytes
local KIND_NONE, KIND_DATA, KIND_PROBE, KIND_RESET = 0, 1, 2, 3
local FLAG_HELLO, FLAG_ACK, FLAG_SEALED, FLAG_INITIAL = 1, 2, 4, 8
local OP_SEND, OP_WRITE, OP_READ_REQUEST, OP_READ_RESPONSE, OP_READ_FAILED, OP_REFUSE, OP_SKIP = 1, 2, 3, 4, 5, 6, 7
local OP_ACK_REQUEST, OP_IMM, OP_DATAGRAM, OP_MORE = 1, 2, 4, 8
local ECHO_OF_PROBE = 255
local DEFAULT_PORTS = "17408-17919" -- SRD_PORT_BASE, 512 ports

local kinds = { [0] = "nothing more", [1] = "data", [2] = "probe", [3] = "reset" }
local operations = {
  [1] = "send", [2] = "write", [3] = "read request", [4] = "read response", [5] = "read failed", [6] = "refuse", [7] = "skip",
}
-- EFA's completion statuses (docs/SPEC.md, section 6).
local statuses = {
  [0] = "ok", [1] = "flushed", [2] = "local queue pair internal error", [3] = "local: unsupported operation",
  [4] = "local: invalid address handle", [5] = "local: invalid key", [6] = "local: bad length", [7] = "remote: bad address or key",
  [8] = "remote: peer was reset", [9] = "remote: bad queue pair", [10] = "remote: no receive buffer",
  [11] = "remote: receive buffer too short", [12] = "remote: bad status", [13] = "unresponsive", [14] = "unknown peer",
  [15] = "unreachable", [18] = "no common version or feature",
}
local causes = {
  truncated = "datagram ends inside a header",
  version = "packet of another protocol version",
  unknown_kind = "packet of unknown kind",
  bad_flags = "flag that is undefined or does not belong with this kind of packet",
  bad_reserved = "reserved field is not zero",
  zero_source_tag = "source tag is zero",
  not_introduced = "destination tag is zero, and the packet does not introduce its sender",
  incarnation_mismatch = "hello names incarnations that are not those of the packet's tags",
  bad_version_range = "hello's lowest version is above its highest",
  small_datagram = "hello's longest datagram has no room for a packet",
  too_many_echoes = "ACK with more echoes than allowed",
  too_many_sack_words = "ACK with a longer bitmap than allowed",
  too_many_cuts = "ACK with more cut packets than echoes",
  unknown_op = "data packet with an unknown operation",
  bad_tx_count = "data packet with the transmission number of a probe",
  bad_length = "length, offset and segment length contradict each other or the datagram's size",
  bad_status = "failure with a status that is unknown or is no failure",
  not_an_introduction = "sealed under the introduction key, but something else than an introduction",
  trailing_bytes = "bytes after the end of a packet without payload",
}

local srd = Proto("srd", "Scalable Reliable Datagram")

local f = {
  version = ProtoField.uint8("srd.version", "Version", base.DEC, nil, 0xf0),
  kind = ProtoField.uint8("srd.kind", "Kind", base.DEC, kinds, 0x0f),
  flags = ProtoField.uint8("srd.flags", "Flags", base.HEX),
  flag_hello = ProtoField.bool("srd.flags.hello", "H: a hello follows", 8, nil, FLAG_HELLO),
  flag_ack = ProtoField.bool("srd.flags.ack", "A: an ACK follows", 8, nil, FLAG_ACK),
  flag_sealed = ProtoField.bool("srd.flags.sealed", "S: sealed", 8, nil, FLAG_SEALED),
  flag_initial = ProtoField.bool("srd.flags.introduction", "I: sealed under the introduction key", 8, nil, FLAG_INITIAL),
  flag_reserved = ProtoField.uint8("srd.flags.reserved", "Reserved", base.HEX, nil, 0xf0),
  src_port = ProtoField.uint16("srd.src_port", "Sender receives at port", base.DEC),
  dst_tag = ProtoField.uint32("srd.dst_tag", "Destination tag", base.HEX),
  src_tag = ProtoField.uint32("srd.src_tag", "Source tag", base.HEX),

  hello = ProtoField.none("srd.hello", "Hello"),
  incarnation = ProtoField.uint64("srd.hello.incarnation", "Incarnation", base.HEX),
  echo_incarnation = ProtoField.uint64("srd.hello.echo", "Receiver's incarnation", base.HEX),
  version_min = ProtoField.uint8("srd.hello.version_min", "Lowest version", base.DEC),
  version_max = ProtoField.uint8("srd.hello.version_max", "Highest version", base.DEC),
  features = ProtoField.uint16("srd.hello.features", "Features", base.HEX),
  max_datagram = ProtoField.uint16("srd.hello.max_datagram", "Longest datagram (bytes)", base.DEC),
  context = ProtoField.uint16("srd.hello.context", "Context", base.DEC),
  rcvbuf = ProtoField.uint32("srd.hello.rcvbuf_kib", "Receive buffer (KiB)", base.DEC),

  ack = ProtoField.none("srd.ack", "ACK"),
  cum = ProtoField.uint32("srd.ack.cum", "Next PSN expected", base.DEC),
  rcvd_bytes = ProtoField.uint32("srd.ack.rcvd_bytes", "Bytes accepted", base.DEC),
  rx_time = ProtoField.uint32("srd.ack.rx_time", "Arrival of the newest (16 ns)", base.DEC),
  senders = ProtoField.uint16("srd.ack.senders", "Senders", base.DEC),
  ce_count = ProtoField.uint16("srd.ack.ce_count", "Congestion marks", base.DEC),
  buffer_level = ProtoField.uint8("srd.ack.buffer_level", "Buffer level (of 255)", base.DEC),
  echoes = ProtoField.uint8("srd.ack.echoes", "Echoes", base.DEC),
  words = ProtoField.uint8("srd.ack.sack_words", "Words of the bitmap", base.DEC),
  cuts = ProtoField.uint8("srd.ack.cuts", "Echoes of cut packets", base.DEC),
  echo = ProtoField.none("srd.ack.echo", "Echo"),
  echo_path = ProtoField.uint8("srd.ack.echo.path", "Path", base.DEC),
  echo_tx_count = ProtoField.uint8("srd.ack.echo.tx_count", "Transmission", base.DEC),
  echo_probe = ProtoField.bool("srd.ack.echo.probe", "Of a probe"),
  echo_cut = ProtoField.bool("srd.ack.echo.cut", "Of a packet that came cut"),
  echo_hold = ProtoField.uint16("srd.ack.echo.hold", "Held (64 ns)", base.DEC),
  echo_psn = ProtoField.uint32("srd.ack.echo.psn", "PSN, or probe's number", base.DEC),
  echo_stamp = ProtoField.uint32("srd.ack.echo.stamp", "Stamp (16 ns)", base.DEC),
  word = ProtoField.uint64("srd.ack.sack", "Bitmap", base.HEX),
  gaps = ProtoField.uint32("srd.ack.missing", "PSNs missing below the newest accepted", base.DEC),

  data = ProtoField.none("srd.data", "Data"),
  psn = ProtoField.uint32("srd.psn", "PSN", base.DEC),
  stamp = ProtoField.uint32("srd.stamp", "Stamp (16 ns)", base.DEC),
  message = ProtoField.uint32("srd.message", "Message", base.DEC),
  len = ProtoField.uint32("srd.len", "Message length", base.DEC),
  offset = ProtoField.uint32("srd.offset", "Offset", base.DEC),
  seg_len = ProtoField.uint16("srd.seg_len", "Segment length", base.DEC),
  path = ProtoField.uint8("srd.path", "Path", base.DEC),
  tx_count = ProtoField.uint8("srd.tx_count", "Transmission (0 is the first)", base.DEC),
  again = ProtoField.bool("srd.retransmission", "Sent again"),
  op = ProtoField.uint8("srd.op", "Operation", base.DEC, operations),
  op_flags = ProtoField.uint8("srd.op_flags", "Flags", base.HEX),
  op_ack = ProtoField.bool("srd.op_flags.ack_request", "R: an ACK is wanted at once", 8, nil, OP_ACK_REQUEST),
  op_imm = ProtoField.bool("srd.op_flags.imm", "M: immediate data", 8, nil, OP_IMM),
  op_datagram = ProtoField.bool("srd.op_flags.datagram", "D: sent by a UD queue pair", 8, nil, OP_DATAGRAM),
  op_more = ProtoField.bool("srd.op_flags.more", "Q: the sender has more to send", 8, nil, OP_MORE),
  op_reserved = ProtoField.uint8("srd.op_flags.reserved", "Reserved", base.HEX, nil, 0xf0),
  data_reserved = ProtoField.uint16("srd.data.reserved", "Reserved", base.HEX),
  dst_qpn = ProtoField.uint16("srd.dst_qpn", "Destination queue pair", base.DEC),
  src_qpn = ProtoField.uint16("srd.src_qpn", "Source queue pair", base.DEC),
  qkey = ProtoField.uint32("srd.qkey", "Queue key", base.HEX),
  rkey = ProtoField.uint32("srd.rkey", "Remote key", base.HEX),
  address = ProtoField.uint64("srd.address", "Address", base.HEX),
  imm = ProtoField.uint32("srd.imm", "Immediate data", base.HEX),
  read_len = ProtoField.uint32("srd.read_len", "Bytes to read", base.DEC),
  read = ProtoField.uint32("srd.read", "Read", base.DEC),
  refused_psn = ProtoField.uint32("srd.refused_psn", "PSN of the message refused", base.DEC),
  status = ProtoField.uint8("srd.status", "Status", base.DEC, statuses),
  failure_reserved = ProtoField.uint24("srd.failure.reserved", "Reserved", base.HEX),
  payload = ProtoField.bytes("srd.payload", "Payload"),
  padding = ProtoField.bytes("srd.padding", "Padding"),

  probe = ProtoField.none("srd.probe", "Probe"),
  probe_path = ProtoField.uint8("srd.probe.path", "Path", base.DEC),
  probe_reserved = ProtoField.uint24("srd.probe.reserved", "Reserved", base.HEX),
  probe_number = ProtoField.uint32("srd.probe.number", "Number", base.DEC),
  probe_stamp = ProtoField.uint32("srd.probe.stamp", "Stamp (16 ns)", base.DEC),

  reset = ProtoField.none("srd.reset", "Reset"),
  stale = ProtoField.uint32("srd.reset.stale", "Tag that was refused", base.HEX),

  ciphertext = ProtoField.bytes("srd.sealed.ciphertext", "Encrypted"),
  seal_tag = ProtoField.bytes("srd.sealed.tag", "Authentication tag"),
  seal_incarnation = ProtoField.uint64("srd.sealed.incarnation", "Sender's incarnation", base.HEX),
  counter = ProtoField.uint64("srd.sealed.counter", "Counter", base.DEC),

  refused = ProtoField.string("srd.refused", "A receiver refuses it"),
}
srd.fields = f

local e = {
  refused = ProtoExpert.new("srd.expert.refused", "A receiver refuses this packet", expert.group.MALFORMED, expert.severity.ERROR),
  cut = ProtoExpert.new("srd.expert.cut", "The capture does not have all of this packet's headers", expert.group.UNDECODED, expert.severity.NOTE),
  again = ProtoExpert.new("srd.expert.retransmission", "Sent again", expert.group.SEQUENCE, expert.severity.NOTE),
  reset = ProtoExpert.new("srd.expert.reset", "Reset: the addressed process is not there any more", expert.group.SEQUENCE, expert.severity.WARN),
  failure = ProtoExpert.new("srd.expert.failure", "An operation was not accepted", expert.group.RESPONSE_CODE, expert.severity.WARN),
}
srd.experts = { e.refused, e.cut, e.again, e.reset, e.failure }

srd.prefs.ports = Pref.range("UDP ports", DEFAULT_PORTS, "Ports at which instances receive: SRD_PORT_BASE and the 511 that follow", 65535)
srd.prefs.heuristic = Pref.bool("Look for it at other UDP ports, too", true, "Whatever has the form of a packet of version 1 is taken for one")

-- Bits without the operators of later Lua versions.
local function has(flags, flag)
  return flags % (2 * flag) >= flag
end

-- Walks over one packet. `tree` may be nil: then it is only judged. `from` and `to` are where the packet begins and ends in the
-- buffer, as it was sent; what of that was captured ends at `have`.
local Walk = {}
Walk.__index = Walk

-- What ends a walk: the cause for which a receiver refuses the packet, or "cut", where the capture ends.
local STOP = {}

local function stop(cause)
  error({ [STOP] = cause }, 0)
end

-- Steps over `count` bytes, which must be there, and returns where they began.
function Walk:take(count)
  local at = self.at
  if at + count > self.to then stop("truncated") end
  if at + count > self.have then stop("cut") end
  self.at = at + count
  return at
end

function Walk:add(tree, field, at, count)
  if tree then return tree:add(field, self.tvb(at, count)) end
end

function Walk:subtree(field, at, count)
  if not self.tree then return nil end
  return self.tree:add(field, self.tvb(at, math.min(count, math.max(self.have - at, 0))))
end

function Walk:u8(at) return self.tvb(at, 1):uint() end
function Walk:u16(at) return self.tvb(at, 2):uint() end
function Walk:u32(at) return self.tvb(at, 4):uint() end

function Walk:common()
  local first = self:u8(self.at)
  local version = math.floor(first / 16)
  if version ~= VERSION then
    self:add(self.tree, f.version, self.at, 1)
    -- In every version these are where they are in this one.
    if self.at + COMMON <= math.min(self.to, self.have) then
      self:add(self.tree, f.src_port, self.at + 2, 2)
      self:add(self.tree, f.dst_tag, self.at + 4, 4)
      self:add(self.tree, f.src_tag, self.at + 8, 4)
    end
    stop("version")
  end
  local at, tree = self:take(COMMON), self.tree
  self.kind, self.flags = first % 16, self:u8(at + 1)
  self.src_port, self.dst_tag, self.src_tag = self:u16(at + 2), self:u32(at + 4), self:u32(at + 8)
  self:add(tree, f.version, at, 1)
  self:add(tree, f.kind, at, 1)
  local flags = self:add(tree, f.flags, at + 1, 1)
  for _, flag in ipairs({ f.flag_hello, f.flag_ack, f.flag_sealed, f.flag_initial, f.flag_reserved }) do
    self:add(flags, flag, at + 1, 1)
  end
  self:add(tree, f.src_port, at + 2, 2)
  self:add(tree, f.dst_tag, at + 4, 4)
  self:add(tree, f.src_tag, at + 8, 4)
end

-- Ciphertext and trailer. Nobody who has no key can say more.
function Walk:sealed()
  local trailer = TAG + COUNTER + (has(self.flags, FLAG_HELLO) and INCARNATION or 0)
  if self.to - self.at < trailer then stop("truncated") end
  if self.flags >= 16 then stop("bad_flags") end
  local tag = self.to - trailer
  local shown = math.min(tag, self.have)
  if shown > self.at then self:add(self.tree, f.ciphertext, self.at, shown - self.at) end
  if self.to > self.have then stop("cut") end
  self:add(self.tree, f.seal_tag, tag, TAG)
  if has(self.flags, FLAG_HELLO) then self:add(self.tree, f.seal_incarnation, tag + TAG, INCARNATION) end
  self:add(self.tree, f.counter, self.to - COUNTER, COUNTER)
  self.at = self.to
  self.info = "Sealed, " .. (kinds[self.kind] or "unknown kind")
  -- What a receiver can tell before it has tried a key (docs/SPEC.md, section 9).
  local hello = has(self.flags, FLAG_HELLO)
  if hello then
    local at = tag + TAG
    local is_zero = self:u32(at) == 0 and self:u32(at + 4) == 0
    if is_zero or math.max(self:u32(at + 4), 1) ~= self.src_tag then stop("incarnation_mismatch") end
  end
  local introduces = hello and not has(self.flags, FLAG_ACK) and (self.kind == KIND_NONE or self.kind == KIND_RESET)
  if has(self.flags, FLAG_INITIAL) and not introduces then stop("not_an_introduction") end
end

function Walk:hello()
  local tree = self:subtree(f.hello, self.at, HELLO)
  local at = self:take(HELLO)
  self:add(tree, f.incarnation, at, 8)
  self:add(tree, f.echo_incarnation, at + 8, 8)
  self:add(tree, f.version_min, at + 16, 1)
  self:add(tree, f.version_max, at + 17, 1)
  self:add(tree, f.features, at + 18, 2)
  self:add(tree, f.max_datagram, at + 20, 2)
  self:add(tree, f.context, at + 22, 2)
  self:add(tree, f.rcvbuf, at + 24, 4)
  -- A tag is the low half of an incarnation, or 1 if that is 0.
  local function tag_of(where) return math.max(self:u32(where + 4), 1) end
  local function is_zero(where) return self:u32(where) == 0 and self:u32(where + 4) == 0 end
  self.introduces = function()
    local echo_fits = is_zero(at + 8) or tag_of(at + 8) == self.dst_tag
    if is_zero(at) or tag_of(at) ~= self.src_tag or not echo_fits then stop("incarnation_mismatch") end
    if self:u8(at + 16) > self:u8(at + 17) then stop("bad_version_range") end
    if self:u16(at + 20) < LEAST_DATAGRAM then stop("small_datagram") end
  end
end

function Walk:ack()
  local begin, tree = self.at, nil
  local fixed = math.min(ACK, self.to - begin, self.have - begin)
  tree = self:subtree(f.ack, begin, math.max(fixed, 0))
  local at = self:take(ACK)
  local cum, echoes, words, cuts = self:u32(at), self:u8(at + 17), self:u8(at + 18), self:u8(at + 19)
  self:add(tree, f.cum, at, 4)
  self:add(tree, f.rcvd_bytes, at + 4, 4)
  self:add(tree, f.rx_time, at + 8, 4)
  self:add(tree, f.senders, at + 12, 2)
  self:add(tree, f.ce_count, at + 14, 2)
  self:add(tree, f.buffer_level, at + 16, 1)
  self:add(tree, f.echoes, at + 17, 1)
  self:add(tree, f.words, at + 18, 1)
  self:add(tree, f.cuts, at + 19, 1)
  if echoes > MOST_ECHOES then stop("too_many_echoes") end
  if cuts > echoes then stop("too_many_cuts") end
  if words > MOST_WORDS then stop("too_many_sack_words") end
  for number = 1, echoes do
    at = self:take(ECHO)
    if tree then
      local echo = tree:add(f.echo, self.tvb(at, ECHO))
      self:add(echo, f.echo_path, at, 1)
      self:add(echo, f.echo_tx_count, at + 1, 1)
      echo:add(f.echo_probe, self:u8(at + 1) == ECHO_OF_PROBE):set_generated()
      echo:add(f.echo_cut, number > echoes - cuts):set_generated()
      self:add(echo, f.echo_hold, at + 2, 2)
      self:add(echo, f.echo_psn, at + 4, 4)
      self:add(echo, f.echo_stamp, at + 8, 4)
      echo:append_text(string.format(" of path %d: %s %d", self:u8(at),
        self:u8(at + 1) == ECHO_OF_PROBE and "probe" or "PSN", self:u32(at + 4)))
    end
  end
  local begin_words = self.at
  for _ = 1, words do
    at = self:take(WORD)
    self:add(tree, f.word, at, WORD)
  end
  if tree then
    tree:set_len(self.at - begin)
    local accepted, missing = self:bitmap(cum, begin_words, words)
    if words > 0 then tree:add(f.gaps, missing):set_generated() end
    tree:append_text(string.format(": all before PSN %d%s", cum, accepted))
  end
  self.ack_info = string.format("ACK %d", cum)
end

-- What the bitmap says in words, and how many PSNs are missing below the newest that it names.
function Walk:bitmap(cum, at, words)
  local ranges, first, missing, pending, newest = {}, nil, 1, 0, false
  for bit = 0, 64 * words do
    local set = false
    if bit < 64 * words then
      -- Word by word, bits from the least significant; a word is big-endian.
      local byte = self:u8(at + 8 * math.floor(bit / 64) + 7 - math.floor(bit % 64 / 8))
      set = has(byte, 2 ^ (bit % 8))
    end
    if set then
      newest, missing, pending = true, missing + pending, 0
      first = first or bit
    else
      pending = pending + 1
      if first then
        local a, b = (cum + 1 + first) % 2 ^ 32, (cum + bit) % 2 ^ 32
        ranges[#ranges + 1] = a == b and string.format("%d", a) or string.format("%d-%d", a, b)
        first = nil
      end
    end
  end
  if not newest then return "", 0 end
  local shown = table.concat(ranges, ", ", 1, math.min(#ranges, 8))
  return ", and " .. shown .. (#ranges > 8 and ", ..." or ""), missing
end

function Walk:route(tree)
  local at = self:take(8)
  self:add(tree, f.dst_qpn, at, 2)
  self:add(tree, f.src_qpn, at + 2, 2)
  self:add(tree, f.qkey, at + 4, 4)
end

function Walk:immediate(tree, flags)
  if has(flags, OP_IMM) then self:add(tree, f.imm, self:take(4), 4) end
end

-- The operation's own header. Returns the status of a failure.
function Walk:operation(tree, op, flags)
  if op == OP_SEND then
    self:route(tree)
    self:immediate(tree, flags)
  elseif op == OP_WRITE or op == OP_READ_REQUEST then
    -- Their headers are one piece each: a datagram that ends in it ends before it.
    local count = op == OP_WRITE and 20 or 28
    if self.at + count > self.to then stop("truncated") end
    self:route(tree)
    local at = self:take(12)
    self:add(tree, f.rkey, at, 4)
    self:add(tree, f.address, at + 4, 8)
    if op == OP_READ_REQUEST then
      at = self:take(8)
      self:add(tree, f.read_len, at, 4)
      self:add(tree, f.read, at + 4, 4)
    else
      self:immediate(tree, flags)
    end
  elseif op == OP_READ_RESPONSE then
    self:add(tree, f.read, self:take(4), 4)
  elseif op == OP_READ_FAILED or op == OP_REFUSE then
    local at = self:take(8)
    self:add(tree, op == OP_REFUSE and f.refused_psn or f.read, at, 4)
    local item = self:add(tree, f.status, at + 4, 1)
    self:add(tree, f.failure_reserved, at + 5, 3)
    if self.tvb(at + 5, 3):uint() ~= 0 then stop("bad_reserved") end
    local status = self:u8(at + 4)
    if not statuses[status] then stop("bad_status") end
    if item then item:add_proto_expert_info(e.failure) end
    return status
  elseif op ~= OP_SKIP then
    stop("unknown_op")
  end
end

function Walk:data()
  local tree = self:subtree(f.data, self.at, DATA)
  local at = self:take(DATA)
  local psn, len, offset, seg_len = self:u32(at), self:u32(at + 12), self:u32(at + 16), self:u16(at + 20)
  local tx_count, op, flags = self:u8(at + 23), self:u8(at + 24), self:u8(at + 25)
  self:add(tree, f.psn, at, 4)
  self:add(tree, f.stamp, at + 4, 4)
  self:add(tree, f.message, at + 8, 4)
  self:add(tree, f.len, at + 12, 4)
  self:add(tree, f.offset, at + 16, 4)
  self:add(tree, f.seg_len, at + 20, 2)
  self:add(tree, f.path, at + 22, 1)
  local count = self:add(tree, f.tx_count, at + 23, 1)
  self:add(tree, f.op, at + 24, 1)
  local shown = self:add(tree, f.op_flags, at + 25, 1)
  for _, flag in ipairs({ f.op_ack, f.op_imm, f.op_datagram, f.op_more, f.op_reserved }) do
    self:add(shown, flag, at + 25, 1)
  end
  self:add(tree, f.data_reserved, at + 26, 2)
  if tree and tx_count > 0 then
    tree:add(f.again, true):set_generated()
    count:add_proto_expert_info(e.again)
  end
  self.info = string.format("%s PSN %d, message %d, %d-%d of %d, path %d%s", operations[op] or "unknown operation", psn,
    self:u32(at + 8), offset, offset + seg_len, len, self:u8(at + 22), tx_count > 0 and ", sent again" or "")

  local imm_allowed, datagram_allowed = op == OP_SEND or op == OP_WRITE, op == OP_SEND
  if flags >= 16 or has(flags, OP_IMM) and not imm_allowed or has(flags, OP_DATAGRAM) and not datagram_allowed then
    stop("bad_flags")
  end
  if self:u16(at + 26) ~= 0 then stop("bad_reserved") end
  local status = self:operation(tree, op, flags)
  if tree then tree:set_len(self.at - at) end
  if self.at + seg_len > self.to then stop("bad_length") end
  if tx_count == ECHO_OF_PROBE then stop("bad_tx_count") end
  if status == 0 then stop("bad_status") end
  local fits
  if op == OP_SEND or op == OP_WRITE or op == OP_READ_RESPONSE then
    fits = offset + seg_len <= len and (seg_len == 0) == (len == 0)
  elseif op == OP_SKIP then
    fits = seg_len == 0
  else
    fits = len == 0 and offset == 0 and seg_len == 0
  end
  if not fits then stop("bad_length") end
  local captured = math.min(seg_len, self.have - self.at)
  if captured > 0 then self:add(self.tree, f.payload, self.at, captured) end
  self.at = self.at + seg_len
  self.may_be_padded = true
end

function Walk:probe()
  local tree = self:subtree(f.probe, self.at, PROBE)
  local at = self:take(PROBE)
  self:add(tree, f.probe_path, at, 1)
  self:add(tree, f.probe_reserved, at + 1, 3)
  self:add(tree, f.probe_number, at + 4, 4)
  self:add(tree, f.probe_stamp, at + 8, 4)
  self.info = string.format("Probe %d of path %d", self:u32(at + 4), self:u8(at))
  if self.tvb(at + 1, 3):uint() ~= 0 then stop("bad_reserved") end
  self.may_be_padded = true
end

function Walk:reset()
  local tree = self:subtree(f.reset, self.at, RESET)
  local at = self:take(RESET)
  self:add(tree, f.stale, at, 4)
  if tree then tree:add_proto_expert_info(e.reset) end
  self.info = string.format("Reset: 0x%08x is not here", self:u32(at))
end

-- All of it, in the order in which a receiver looks.
function Walk:packet()
  self:common()
  if has(self.flags, FLAG_SEALED) then return self:sealed() end
  if self.flags >= FLAG_SEALED then stop("bad_flags") end
  local hello, ack = has(self.flags, FLAG_HELLO), has(self.flags, FLAG_ACK)
  if hello then self:hello() end
  if self.src_tag == 0 then stop("zero_source_tag") end
  if ack and self.dst_tag == 0 then stop("bad_flags") end
  if hello then self.introduces() elseif self.dst_tag == 0 then stop("not_introduced") end
  if ack then self:ack() end
  if self.kind == KIND_DATA then
    self:data()
  elseif self.kind == KIND_RESET then
    if ack then stop("bad_flags") end
    self:reset()
  elseif self.kind == KIND_PROBE then
    self:probe()
  elseif self.kind ~= KIND_NONE then
    stop("unknown_kind")
  end
end

-- Where the next datagram of a buffer begins that the kernel has not cut yet, if this is one: behind the padding something with
-- the same ends.
function Walk:next_datagram()
  local at, last = self.at, math.min(self.to, self.have)
  while at < last and self:u8(at) == 0 do at = at + 1 end
  if at + COMMON > last or math.floor(self:u8(at) / 16) ~= VERSION then return nil end
  local same = self:u16(at + 2) == self.src_port and self:u32(at + 4) == self.dst_tag and self:u32(at + 8) == self.src_tag
  return same and at or nil
end

-- Judges one packet, and shows it in `tree`. Returns the walk, the cause for which it would be refused (or "cut"), and where
-- another packet follows.
local function walk(tvb, from, to, have, tree)
  local self = setmetatable({ tvb = tvb, at = from, to = to, have = have, tree = tree }, Walk)
  local ok, why = pcall(self.packet, self)
  local cause = nil
  if not ok then
    cause = type(why) == "table" and why[STOP] or error(why, 0)
  end
  if cause or has(self.flags, FLAG_SEALED) then return self, cause, nil end
  local following = self.at < to and self:next_datagram() or nil
  local rest = following or to
  if self.at < rest then
    if not self.may_be_padded then return self, "trailing_bytes", nil end
    local captured = math.min(rest, have) - self.at
    if captured > 0 then self:add(tree, f.padding, self.at, captured) end
  end
  return self, nil, following
end

local function lengths(tvb)
  local have = tvb:captured_len()
  return have, math.max(tvb:reported_len(), have)
end

function srd.dissector(tvb, pinfo, root)
  local have, to = lengths(tvb)
  if have == 0 then return 0 end
  pinfo.cols.protocol = "SRD"
  local from, infos = 0, {}
  while from do
    local tree = root:add(srd, tvb(from, have - from))
    local packet, cause, following = walk(tvb, from, to, have, tree)
    if following then tree:set_len(following - from) end
    local info = packet.info or (packet.ack_info and "") or (cause and "") or "Hello"
    if packet.ack_info then info = info == "" and packet.ack_info or info .. ", " .. packet.ack_info end
    if cause == "cut" then
      tree:add_proto_expert_info(e.cut)
    elseif cause then
      tree:add(f.refused, cause):set_generated()
      tree:add_proto_expert_info(e.refused, "A receiver refuses it: " .. (causes[cause] or cause))
      info = "[" .. cause .. "] " .. info
    end
    tree:append_text(": " .. info)
    infos[#infos + 1] = info
    from = following
  end
  pinfo.cols.info = infos[1] .. (#infos > 1 and string.format(" (and %d more in one piece)", #infos - 1) or "")
  return have
end

-- At ports that nobody has named: what a receiver would take, in clear. (Of a sealed packet there is too little to know it by.)
local function heuristic(tvb, pinfo, root)
  local have, to = lengths(tvb)
  if not srd.prefs.heuristic or have < COMMON then return false end
  local first, flags = tvb(0, 1):uint(), tvb(1, 1):uint()
  if math.floor(first / 16) ~= VERSION or flags >= FLAG_SEALED or tvb(2, 2):uint() == 0 then return false end
  local _, cause = walk(tvb, 0, to, have, nil)
  if cause then return false end
  srd.dissector(tvb, pinfo, root)
  return true
end

local ports = DissectorTable.get("udp.port")
local registered = srd.prefs.ports

function srd.prefs_changed()
  if registered ~= srd.prefs.ports then
    ports:remove(registered, srd)
    registered = srd.prefs.ports
    ports:add(registered, srd)
  end
end

ports:add(registered, srd)
srd:register_heuristic("udp", heuristic)
