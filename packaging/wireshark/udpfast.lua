-- Wireshark and tshark: the Roq UDP protocol, header, fragments, sessions, and what was lost.
--
-- Install: copy this file to the folder "Personal Lua Plugins" of Help > About Wireshark > Folders
-- (~/.local/lib/wireshark/plugins), or: tshark -X lua_script:udpfast.lua -r FILE. Ports are a
-- preference of the protocol (roqudp.ports), or "Decode As...".
--
-- A line is one destination (address and port); a channel is all lines of one session that are
-- incremental, or all that are snapshot. roqudp.snapshot_ports tells which lines are snapshot. If
-- it is empty, the snapshot bit tells: a line is incremental as soon as one payload comes without
-- it, since the incremental channel carries snapshots too (heartbeats have no such bit, nor has the
-- legacy revision). What of a channel was not brought by any line is lost; what one line did not
-- bring, and another one did, is lost on that line. Both are known for certain when the whole file
-- was read once: Wireshark does so, tshark with -2.
--
-- Lua 5.2 to 5.4: no bit operators, numbers may be floats.

local roq = Proto("roqudp", "Roq UDP")

local HEADER_SIZE = 16
local PAYLOAD_MAX = 512
local NUMBERS = 4294967296 -- seqnos go from 0 to one less
local REMEMBERED = 65536 -- further behind the newest number is another numbering, not a late one
local SKIPPED_MAX = 8192 -- a jump further ahead is another numbering, not a loss
local NUMBERINGS_MAX = 8 -- of one session that are looked through, the youngest first
local REPLAYED = 32 -- datagrams brought again, in a row and in order: a restart with the same id
local REPLAYED_TOO = 4 -- the same, once another line of the channel has shown it
local STRAYS_MAX = 64 -- of other sessions, held beside until one of these is believed
local STEP_BACK_MAX = 8 -- of that row: what was only reordered does not end it

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
    "Of these, destination ports of snapshot lines; empty: the snapshot bit tells", 65535)
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

local lines, channels, found -- by destination; by session and kind; by frame

function roq.init()
    lines, channels, found = {}, {}, {}
end

-- How far a is ahead of b, by serial numbers: negative if it is behind.
local function distance(a, b)
    local ahead = (a - b) % NUMBERS
    return ahead < NUMBERS / 2 and ahead or ahead - NUMBERS
end

-- A numbering is the messages of a line, or of a channel, from a session's begin or a jump to the
-- next one. Its numbers go on beyond 2^32, so that each has one message.
local function unwrapped(numbering, seqno)
    local newest = numbering.newest
    return newest and newest + distance(seqno, newest % NUMBERS) or seqno
end

local function is_near(numbering, seqno)
    local ahead = distance(seqno, numbering.newest % NUMBERS)
    return ahead <= SKIPPED_MAX and ahead >= -REMEMBERED
end

-- The youngest numbering that a seqno goes on with, but none as old as `older`; nil: there is none.
local function near_numbering(list, seqno, older)
    for at = #list, math.max(1, #list - NUMBERINGS_MAX + 1), -1 do
        if list[at] == older then
            return nil
        elseif is_near(list[at], seqno) then
            return list[at]
        end
    end
    return nil
end

local function new_numbering(list)
    local numbering = { messages = {} }
    list[#list + 1] = numbering
    return numbering
end

-- Note a fragment. Returns its message, the frame that brought it before, and the span of numbers
-- that this datagram leaves behind: from the newest number before it up to the one before its own.
-- The last fragment of a message (`max`) is what the first of it to come said.
local function track(numbering, datagram)
    local number = unwrapped(numbering, datagram.seqno)
    local message = numbering.messages[number]
    if message == nil then
        message = { frames = {}, seen = 0, max = datagram.max }
        numbering.messages[number] = message
    end
    local before = message.frames[datagram.fragment]
    if message.max == datagram.max and (before == nil or before > datagram.frame) then
        message.frames[datagram.fragment] = datagram.frame
        message.seen = message.seen + (before and 0 or 1)
    end
    local newest = numbering.newest or number
    numbering.newest = math.max(newest, number)
    local span = nil
    if number > newest then
        span = { messages = numbering.messages, first = newest, last = number - 1 }
    end
    return message, before, span
end

-- Take back what `track` noted of a datagram.
local function forget(message, datagram)
    if message.frames[datagram.fragment] == datagram.frame then
        message.frames[datagram.fragment] = nil
        message.seen = message.seen - 1
    end
end

local function whole(message)
    return message ~= nil and message.seen > message.max
end

-- The numbers of a span whose messages are not whole: how many, and as text ("5-7, 9").
local function missing(span)
    local count, parts, first = 0, {}, nil
    local function close(last)
        if first then
            local text = string.format("%.0f", first % NUMBERS)
            parts[#parts + 1] = first == last and text
                or text .. string.format("-%.0f", last % NUMBERS)
            first = nil
        end
    end
    for number = span.first, span.last do
        if whole(span.messages[number]) then
            close(number - 1)
        else
            count = count + 1
            first = first or number
        end
    end
    close(span.last)
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

-- Whether the preference says that a port is a snapshot line's; nil if it says nothing of any port.
local function snapshot_port(port)
    local ports = tostring(roq.prefs.snapshot_ports)
    if ports == "" then
        return nil
    end
    return has_port(ports, port)
end

-- Which channel a session has on a line. While only snapshot bits told, or heartbeats alone came,
-- the line may turn out to be of another channel: then the history is gone through again.
local function channel_key(line, session)
    return session .. " " .. (line.snapshot == nil and line.where or line.snapshot and "S" or "I")
end

-- Note a datagram in its channel. A numbering of a line stays with one numbering of the channel.
local function share(entry)
    local datagram, result, numbering = entry.datagram, entry.result, entry.numbering
    local key = channel_key(entry.line, datagram.session)
    local channel = channels[key] or { list = {}, of = {}, history = {} }
    channels[key] = channel
    local shared = channel.of[numbering]
    if shared == nil then
        local older = numbering.previous and channel.of[numbering.previous]
        shared = near_numbering(channel.list, datagram.seqno, older) or new_numbering(channel.list)
        channel.of[numbering] = shared
    end
    local before
    result.message, before, result.span = track(shared, datagram)
    result.copy_of = before
    if before and before > datagram.frame then -- these numbers were gone through again
        found[before].copy_of, result.copy_of = datagram.frame, nil
    end
    result.differs = result.message.max ~= datagram.max
    if entry.line.snapshot ~= false then
        channel.history[#channel.history + 1] = entry
    end
end

local function set_snapshot(line, snapshot)
    local keys = {}
    for session in pairs(line.numberings) do
        keys[#keys + 1] = channel_key(line, session)
    end
    line.snapshot = snapshot
    for _, key in ipairs(keys) do
        local history = channels[key] and channels[key].history or {}
        channels[key] = nil
        for _, entry in ipairs(history) do
            share(entry)
        end
    end
end

local function follow(line, numbering, datagram, result)
    local snapshot = datagram.snapshot_port
    if snapshot == nil and not datagram.empty then
        snapshot = datagram.snapshot
    end
    if snapshot ~= nil and line.snapshot ~= snapshot and line.snapshot ~= false then
        set_snapshot(line, snapshot)
    end
    result.line = line
    local message, before, span = track(numbering, datagram)
    result.line_message, result.duplicate, result.line_span = message, before ~= nil, span
    share({ line = line, numbering = numbering, datagram = datagram, result = result })
end

-- Whether a line began anew with the same session: it brings again what it brought, in order, and
-- nothing beyond. Then these datagrams are the first of a new numbering.
local function watch_replay(line, datagram, result, progress)
    local row = line.row
    if progress then
        line.row = nil
        return
    end
    if row == nil or distance(datagram.seqno, row.seqno) < -STEP_BACK_MAX then
        row = { seqno = datagram.seqno, fragment = -1, count = 0, held = {} }
        line.row = row
    end
    row.held[#row.held + 1] = { datagram = datagram, result = result }
    local ahead = distance(datagram.seqno, row.seqno)
    if ahead > 0 or ahead == 0 and datagram.fragment > row.fragment then
        row.seqno, row.fragment = datagram.seqno, datagram.fragment
        row.count = row.count + (result.duplicate and not datagram.empty and 1 or 0)
    end
    local channel = channels[channel_key(line, line.session)]
    local known = near_numbering(channel.list, datagram.seqno, channel.of[line.numbering])
    if row.count >= (known and REPLAYED_TOO or REPLAYED) then
        local numbering = new_numbering(line.numberings[line.session])
        numbering.previous, line.numbering, line.row = line.numbering, numbering, nil
        row.held[1].result.begins = true
        for _, each in ipairs(row.held) do
            forget(each.result.line_message, each.datagram)
            forget(each.result.message, each.datagram)
            follow(line, numbering, each.datagram, each.result)
        end
    end
end

local function advance(line, datagram, result)
    local newest = line.numbering.newest
    follow(line, line.numbering, datagram, result)
    watch_replay(line, datagram, result, newest == nil or line.numbering.newest > newest)
end

-- Whether one datagram goes on with another.
local function confirms(one, other)
    return one.session == other.session
        and math.abs(distance(one.seqno, other.seqno)) <= SKIPPED_MAX
end

-- Let a line go on with a session, with a numbering that it had or with a new one, from what was
-- held beside and belongs to it.
local function enter(line, datagram)
    line.session, line.row = datagram.session, nil
    local list = line.numberings[line.session] or {}
    line.numberings[line.session] = list
    line.numbering = near_numbering(list, datagram.seqno)
    local begins = line.numbering == nil
    line.numbering = line.numbering or new_numbering(list)
    for _, stray in ipairs(line.strays) do
        if confirms(stray.datagram, datagram) then
            stray.result.begins, begins = begins or nil, false
            stray.result.foreign = nil
            advance(line, stray.datagram, stray.result)
        end
    end
    line.strays = {}
end

-- Look at a datagram once, in the order of the file. A session, or a numbering far from the one at
-- hand, is believed when its second datagram in a row comes on a line: a single one is a stray.
local function look(where, datagram)
    local result = {}
    found[datagram.frame] = result
    local line = lines[where] or { where = where, numberings = {}, strays = {} }
    lines[where] = line
    local last = line.last
    line.last = nil
    if line.session == datagram.session and is_near(line.numbering, datagram.seqno) then
        advance(line, datagram, result)
        return result
    end
    line.strays[#line.strays + 1] = { datagram = datagram, result = result }
    result.foreign = true
    if line.session == nil or last and confirms(last, datagram) then
        enter(line, datagram)
        return result
    end
    line.last = datagram
    if #line.strays > STRAYS_MAX then
        table.remove(line.strays, 1)
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

-- Say what is missing of a span: of all lines together, or of one.
local function tell_lost(tree, info, span, field, field_numbers, expert, words, label)
    if not span then
        return
    end
    local count, numbers = missing(span)
    if count > 0 then
        tree:add(field, count):set_generated()
        tree:add(field_numbers, numbers):set_generated()
        tree:add_proto_expert_info(expert, words .. ": " .. numbers)
        info[#info + 1] = string.format(label, count)
    end
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
    if result.differs then
        local text = "fragment_max is not the message's, which is " .. result.message.max
        tree:add(f.refused, text):set_generated()
        tree:add_proto_expert_info(e.refused, text)
        info[#info + 1] = "[" .. text .. "]"
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
    tell_lost(tree, info, result.span, f.lost, f.lost_numbers, e.lost, "lost on all lines",
        "[LOST %d]")
    tell_lost(tree, info, result.line_span, f.line_lost, f.line_lost_numbers, e.line_lost,
        "lost on this line", "[%d lost on this line]")
end

-- What the datagram's line is, or what its own bit says as long as no line is known.
local function kind(datagram, line)
    local snapshot = datagram.snapshot
    if line and line.snapshot ~= nil then
        snapshot = line.snapshot
    end
    if datagram.snapshot and not snapshot then
        return "Incremental (a snapshot)"
    end
    return snapshot and "Snapshot" or "Incremental"
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
        snapshot_port = snapshot_port(pinfo.dst_port),
    }
    add_header(tree, buffer, datagram)
    local info = {
        "", -- which channel, as far as it is known at the end
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
    if not pinfo.visited and result == nil and not pinfo.in_error_pkt then -- ICMP quotes it
        result = look(where, datagram)
    end
    if result then
        add_found(tree, result, info)
    end
    info[1] = kind(datagram, result and result.line)
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
