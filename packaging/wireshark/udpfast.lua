-- Wireshark and tshark: the Roq UDP protocol, header, fragments, sessions, and what was lost.
--
-- Install: copy this file to the folder "Personal Lua Plugins" of Help > About Wireshark > Folders
-- (~/.local/lib/wireshark/plugins), or: tshark -X lua_script:udpfast.lua -r FILE. Ports are a
-- preference of the protocol (roqudp.ports), or "Decode As...".
--
-- A line is one destination (address and port); a channel is all lines of one session that are
-- incremental, or all that are snapshot: a line is what the snapshot bit of its first payload says,
-- or roqudp.snapshot_ports (heartbeats have no such bit, nor has the legacy revision). What of a channel was not brought by any line is lost; what
-- one line did not bring, and another one did, is lost on that line. Both are known for certain
-- when the whole file was read once: Wireshark does so, tshark with -2.
--
-- Lua 5.2 to 5.4: no bit operators, numbers may be floats.

local roq = Proto("roqudp", "Roq UDP")

local HEADER_SIZE = 16
local PAYLOAD_MAX = 512
local NUMBERS = 4294967296 -- seqnos go from 0 to one less
local REMEMBERED = 65536 -- of a line and of a channel: numbers behind the newest one
local SKIPPED_MAX = 8192 -- a jump further ahead is another numbering, not a loss

local ENCODINGS = { [1] = "native", [2] = "FlatBuffers" }

-- Union codes of the published schema; codes beyond are shown as numbers.
local MESSAGES = {
    "Handshake", "HandshakeAck", "Handshake2", "BatchBegin", "BatchEnd", "DownloadBegin",
    "DownloadEnd", "GatewaySettings", "StreamStatus", "ExternalLatency", "RateLimitTrigger",
    "GatewayStatus", "ReferenceData", "MarketStatus", "TopOfBook", "MarketByPriceUpdate",
    "MarketByOrderUpdate", "TradeSummary", "StatisticsUpdate", "CreateOrder", "ModifyOrder",
    "CancelOrder", "CancelAllOrders", "OrderAck", "OrderUpdate", "TradeUpdate", "PositionUpdate",
    "FundsUpdate", "CustomMetrics", "CustomMetricsUpdate", "ParametersUpdate", "PortfolioUpdate",
    "CustomMatrix", "CustomMatrixUpdate", "RiskLimits", "RiskLimitsUpdate", "Ready",
    "CancelAllOrdersAck", "Portfolio", "RateLimitsUpdate", "TimeSeriesUpdate", "MassQuote",
    "MassQuoteAck", "CancelQuotes", "CancelQuotesAck", "Control", "ControlAck", "ServiceUpdate",
    "StrategyUpdate", "LegsUpdate", "Subscribe",
}

local REFUSED = {
    "too short: less than 16 bytes", "too long: more than 528 bytes",
    "fragment beyond fragment_max", "not the last fragment, and not 512 bytes",
}

roq.prefs.ports = Pref.range("UDP ports", "9001,9002,9101", "Destination ports of the lines", 65535)
roq.prefs.snapshot_ports = Pref.range("Snapshot ports", "",
    "Of these, destination ports of snapshot lines; others are told by the snapshot bit", 65535)
roq.prefs.big_endian = Pref.bool("Big-endian header", false, "wire.byteorder of the feed")
roq.prefs.legacy = Pref.bool("Legacy revision", false,
    "The whole first byte is the encoding; there is no snapshot bit")

local f = {
    control = ProtoField.uint8("roqudp.control", "Control", base.HEX),
    encoding = ProtoField.uint8("roqudp.encoding", "Encoding", base.DEC, ENCODINGS),
    snapshot = ProtoField.bool("roqudp.snapshot", "Snapshot"),
    fragment = ProtoField.uint8("roqudp.fragment", "Fragment (0-based)", base.DEC),
    fragment_max = ProtoField.uint8("roqudp.fragment_max", "Last fragment (0-based)", base.DEC),
    object_type = ProtoField.uint8("roqudp.object_type", "Object type", base.DEC),
    object_id = ProtoField.uint16("roqudp.object_id", "Object id", base.DEC),
    session_id = ProtoField.uint16("roqudp.session_id", "Session", base.DEC),
    seqno = ProtoField.uint32("roqudp.seqno", "Seqno", base.DEC),
    last_seqno = ProtoField.uint32("roqudp.last_seqno", "Last seqno of the object", base.DEC),
    payload = ProtoField.bytes("roqudp.payload", "Payload"),
    heartbeat = ProtoField.bool("roqudp.heartbeat", "Heartbeat"),
    message = ProtoField.string("roqudp.message", "Message type"),
    refused = ProtoField.string("roqudp.refused", "Refused"),
    cut = ProtoField.bool("roqudp.cut", "The capture kept less than the header: not counted"),
    session_begins = ProtoField.bool("roqudp.session.begins", "A session, or a numbering, begins on this line"),
    session_foreign = ProtoField.bool("roqudp.session.foreign", "Of another session, or far from the line's numbers"),
    copy_of = ProtoField.framenum("roqudp.copy_of", "Brought before in", base.NONE),
    duplicate = ProtoField.bool("roqudp.duplicate", "Brought before by this line"),
    fragments = ProtoField.uint32("roqudp.fragments", "Fragments of the message"),
    fragments_seen = ProtoField.uint32("roqudp.fragments.seen", "Fragments seen, by all lines"),
    lost = ProtoField.uint32("roqudp.lost", "Lost before this: messages that no line brought whole"),
    lost_numbers = ProtoField.string("roqudp.lost.numbers", "Lost seqnos"),
    line_lost = ProtoField.uint32("roqudp.line.lost", "Not brought whole by this line, before this"),
    line_lost_numbers = ProtoField.string("roqudp.line.lost.numbers", "Seqnos missing on this line"),
}
roq.fields = f

local e = {
    refused = ProtoExpert.new("roqudp.refused.expert", "Not a datagram of the protocol",
        expert.group.MALFORMED, expert.severity.ERROR),
    lost = ProtoExpert.new("roqudp.lost.expert", "Messages were lost on all lines",
        expert.group.SEQUENCE, expert.severity.ERROR),
    line_lost = ProtoExpert.new("roqudp.line.lost.expert", "Messages were lost on this line",
        expert.group.SEQUENCE, expert.severity.NOTE),
    session = ProtoExpert.new("roqudp.session.expert", "A session begins",
        expert.group.SEQUENCE, expert.severity.WARN),
    foreign = ProtoExpert.new("roqudp.session.foreign.expert", "Of another session than the line's",
        expert.group.SEQUENCE, expert.severity.WARN),
    control = ProtoExpert.new("roqudp.control.expert", "Unused control bits are set",
        expert.group.PROTOCOL, expert.severity.NOTE),
}
roq.experts = { e.refused, e.lost, e.line_lost, e.session, e.foreign, e.control }

local lines, channels, found -- by destination; by session and direction; by frame

function roq.init()
    lines, channels, found = {}, {}, {}
end

-- How far a is ahead of b, by serial numbers: negative if it is behind.
local function distance(a, b)
    local ahead = (a - b) % NUMBERS
    return ahead < NUMBERS / 2 and ahead or ahead - NUMBERS
end

-- Messages by number, of a line or of a channel: which fragments came, and up to where. The last
-- fragment of a message (`max`) is not known before any of it came.
local function new_tracker()
    return { messages = {}, newest = nil }
end

-- Note a fragment. Returns its message, whether it came before, and the span of numbers that this
-- datagram leaves behind: from the newest number before it up to the one before its own.
local function track(tracker, seqno, fragment, fragment_max, frame)
    local ahead = tracker.newest and distance(seqno, tracker.newest) or 0
    if ahead > SKIPPED_MAX or ahead < -REMEMBERED then
        tracker.messages, tracker.newest, ahead = {}, nil, 0
    end
    local message = tracker.messages[seqno]
    local before = message and message.frames[fragment]
    if message == nil then
        message = { frames = {}, seen = 0 }
        tracker.messages[seqno] = message
    end
    message.max = message.max or fragment_max
    if not before then
        message.frames[fragment] = frame
        message.seen = message.seen + 1
    end
    -- What is looked up later, when the messages of these numbers may be complete.
    local span = {}
    for step = 0, ahead - 1 do
        tracker.messages[(seqno - REMEMBERED - step) % NUMBERS] = nil
        local number = (tracker.newest + step) % NUMBERS
        tracker.messages[number] = tracker.messages[number] or { frames = {}, seen = 0 }
        span[#span + 1] = { number = number, message = tracker.messages[number] }
    end
    if tracker.newest == nil or ahead > 0 then
        tracker.newest = seqno
    end
    return message, before, span
end

local function whole(message)
    return message.max ~= nil and message.seen > message.max
end

-- The numbers of a span whose messages are not whole: how many, and as text ("5-7, 9").
local function missing(span)
    local count, parts, first, last = 0, {}, nil, nil
    local function close()
        if first then
            parts[#parts + 1] = first == last and string.format("%.0f", first)
                or string.format("%.0f-%.0f", first, last)
        end
    end
    for _, each in ipairs(span) do
        if not whole(each.message) then
            count = count + 1
            if first == nil or each.number ~= (last + 1) % NUMBERS then
                close()
                first = each.number
            end
            last = each.number
        end
    end
    close()
    return count, table.concat(parts, ", ")
end

-- Whether a range of ports, as text ("9001,9101-9103"), has one.
local function has_port(range, port)
    for first, last in string.gmatch(tostring(range), "(%d+)%-?(%d*)") do
        if port >= tonumber(first) and port <= tonumber(last ~= "" and last or first) then
            return true
        end
    end
    return false
end

local function follow(line, datagram, result)
    if line.snapshot == nil then
        if not datagram.snapshot_port and datagram.empty then
            return -- a heartbeat, before anything said which channel this is
        end
        line.snapshot = datagram.snapshot_port or datagram.snapshot
    end
    local key = datagram.session .. (line.snapshot and "S" or "I")
    channels[key] = channels[key] or new_tracker()
    local message, before, span =
        track(channels[key], datagram.seqno, datagram.fragment, datagram.max, datagram.frame)
    result.message, result.copy_of, result.span = message, before, span
    line.tracker = line.tracker or new_tracker()
    local _, repeated, own =
        track(line.tracker, datagram.seqno, datagram.fragment, datagram.max, datagram.frame)
    result.duplicate, result.line_span = repeated ~= nil, own
end

-- Whether a datagram goes on with the numbering of a line.
local function goes_on(line, datagram)
    if datagram.session ~= line.session then
        return false
    end
    local newest = line.tracker and line.tracker.newest
    local ahead = newest and distance(datagram.seqno, newest) or 0
    return ahead <= SKIPPED_MAX and ahead >= -REMEMBERED
end

-- Whether a datagram goes on with one that was held beside.
local function confirms(candidate, datagram)
    return candidate ~= nil and candidate.datagram.session == datagram.session
        and math.abs(distance(datagram.seqno, candidate.datagram.seqno)) <= SKIPPED_MAX
end

-- Look at a datagram once, in the order of the file. A session, or a numbering far from the one at
-- hand, is believed when its second datagram in a row comes on a line: a single one is a stray.
local function look(where, datagram)
    local result = {}
    found[datagram.frame] = result
    local line = lines[where]
    if line == nil then
        line = { session = datagram.session }
        lines[where] = line
        result.begins = true
    end
    if goes_on(line, datagram) then
        line.candidate = nil
        follow(line, datagram, result)
    elseif confirms(line.candidate, datagram) then
        local first = line.candidate
        line = { session = datagram.session, snapshot = line.snapshot }
        lines[where] = line
        first.result.begins, first.result.foreign = true, nil
        follow(line, first.datagram, first.result)
        follow(line, datagram, result)
    else
        line.candidate = { datagram = datagram, result = result }
        result.foreign = true
    end
    return result
end

-- The type of the message in a FlatBuffers payload, as far as the first fragment has it. Every
-- offset is checked: nothing of a payload is believed.
local function message_type(payload)
    local size = payload:len()
    if size < 8 then
        return nil
    end
    local root = payload(0, 4):le_uint()
    if root + 4 > size then
        return nil
    end
    local vtable = root - payload(root, 4):le_int()
    if vtable < 0 or vtable + 8 > size or payload(vtable, 2):le_uint() < 8 then
        return nil
    end
    local offset = payload(vtable + 6, 2):le_uint() -- field 1: the union's code
    if offset == 0 or root + offset >= size then
        return nil
    end
    local code = payload(root + offset, 1):uint()
    return MESSAGES[code] or ("type " .. code)
end

local function refusal(size, fragment, fragment_max)
    if size > HEADER_SIZE + PAYLOAD_MAX then
        return REFUSED[2]
    elseif fragment > fragment_max then
        return REFUSED[3]
    elseif fragment < fragment_max and size ~= HEADER_SIZE + PAYLOAD_MAX then
        return REFUSED[4]
    end
    return nil
end

local function add_header(tree, buffer, datagram)
    local add = roq.prefs.big_endian and tree.add or tree.add_le
    local control = tree:add(f.control, buffer(0, 1))
    control:add(f.encoding, buffer(0, 1), datagram.encoding)
    if not roq.prefs.legacy then
        control:add(f.snapshot, buffer(0, 1), datagram.snapshot)
        if datagram.control >= 32 then
            control:add_proto_expert_info(e.control)
        end
    end
    tree:add(f.fragment, buffer(1, 1))
    tree:add(f.fragment_max, buffer(2, 1))
    tree:add(f.object_type, buffer(3, 1))
    add(tree, f.object_id, buffer(4, 2))
    add(tree, f.session_id, buffer(6, 2))
    add(tree, f.seqno, buffer(8, 4))
    add(tree, f.last_seqno, buffer(12, 4))
end

local function add_found(tree, result, info)
    if result.begins then
        tree:add(f.session_begins, true):set_generated()
        tree:add_proto_expert_info(e.session)
        info[#info + 1] = "[SESSION]"
    end
    if result.foreign then
        tree:add(f.session_foreign, true):set_generated()
        tree:add_proto_expert_info(e.foreign)
        info[#info + 1] = "[another session]"
        return
    end
    if result.message == nil then
        return
    end
    tree:add(f.fragments, result.message.max + 1):set_generated()
    tree:add(f.fragments_seen, result.message.seen):set_generated()
    if result.copy_of then
        tree:add(f.copy_of, result.copy_of):set_generated()
        info[#info + 1] = "[copy]"
    end
    if result.duplicate then
        tree:add(f.duplicate, true):set_generated()
    end
    local count, numbers = missing(result.span)
    if count > 0 then
        tree:add(f.lost, count):set_generated()
        tree:add(f.lost_numbers, numbers):set_generated()
        tree:add_proto_expert_info(e.lost, "lost on all lines: " .. numbers)
        info[#info + 1] = string.format("[LOST %d]", count)
    end
    count, numbers = missing(result.line_span)
    if count > 0 then
        tree:add(f.line_lost, count):set_generated()
        tree:add(f.line_lost_numbers, numbers):set_generated()
        tree:add_proto_expert_info(e.line_lost, "lost on this line: " .. numbers)
        info[#info + 1] = string.format("[%d lost on this line]", count)
    end
end

function roq.dissector(buffer, pinfo, root)
    pinfo.cols.protocol = "Roq UDP"
    local size = buffer:reported_len() -- on the wire: a capture may have kept less of it
    local tree = root:add(roq, buffer())
    if buffer:len() < HEADER_SIZE and size >= HEADER_SIZE then
        tree:add(f.cut, true):set_generated()
        pinfo.cols.info = "the capture kept less than the header"
        return buffer:len()
    end
    if size < HEADER_SIZE then
        tree:add(f.refused, REFUSED[1]):set_generated()
        tree:add_proto_expert_info(e.refused, REFUSED[1])
        pinfo.cols.info = "refused: " .. REFUSED[1]
        return size
    end
    local big = roq.prefs.big_endian
    local function number(at, width)
        return big and buffer(at, width):uint() or buffer(at, width):le_uint()
    end
    local control = buffer(0, 1):uint()
    local datagram = {
        frame = pinfo.number,
        control = control,
        encoding = roq.prefs.legacy and control or control % 16,
        snapshot = not roq.prefs.legacy and math.floor(control / 16) % 2 == 1,
        fragment = buffer(1, 1):uint(),
        max = buffer(2, 1):uint(),
        session = number(6, 2),
        seqno = number(8, 4),
        empty = size == HEADER_SIZE,
        snapshot_port = has_port(roq.prefs.snapshot_ports, pinfo.dst_port),
    }
    add_header(tree, buffer, datagram)
    local info = {
        datagram.snapshot and "Snapshot" or "Incremental",
        string.format("session=%d seqno=%.0f", datagram.session, datagram.seqno),
        string.format("object=%d:%d", buffer(3, 1):uint(), number(4, 2)),
    }
    local refused = refusal(size, datagram.fragment, datagram.max)
    if refused then
        tree:add(f.refused, refused):set_generated()
        tree:add_proto_expert_info(e.refused, refused)
        pinfo.cols.info = "refused: " .. refused
        return size
    end
    if datagram.max > 0 then
        info[#info + 1] = string.format("fragment %d/%d", datagram.fragment + 1, datagram.max + 1)
    end
    if buffer:len() > HEADER_SIZE then
        local payload = buffer(HEADER_SIZE)
        tree:add(f.payload, payload)
        local name = datagram.fragment == 0 and datagram.encoding == 2 and message_type(payload:tvb())
        if name then
            tree:add(f.message, name):set_generated()
            info[#info + 1] = name
        end
    elseif size == HEADER_SIZE and datagram.max == 0 then
        tree:add(f.heartbeat, true):set_generated()
        info[#info + 1] = "heartbeat"
    end
    local where = tostring(pinfo.dst) .. ":" .. pinfo.dst_port
    local result = found[pinfo.number]
    if not pinfo.visited and result == nil then
        result = look(where, datagram)
    end
    if result then
        add_found(tree, result, info)
    end
    pinfo.cols.info = table.concat(info, " ")
    return size
end

local udp = DissectorTable.get("udp.port")
local registered = roq.prefs.ports

udp:add(registered, roq)
udp:add_for_decode_as(roq)

function roq.prefs_changed()
    if registered ~= roq.prefs.ports then
        udp:remove(registered, roq)
        registered = roq.prefs.ports
        udp:add(registered, roq)
    end
end
