-- What every script needs to know of a sale's copy; put in front of each script when it is loaded.
--
-- A copy is whole when the three keys are hashes, `held` and `buyers` carry the sentinel field `#epoch` with the sale's
-- epoch, and epoch, stock, ticket and quantity are plain integers (docs/protocol.md 3). Anything else counts as missing:
-- a fail-over or an operator may have left half of it.

-- A number in full: Lua's own tostring and JSON go over to 1e+15.
local function plain(number)
  return string.format('%.0f', number)
end

-- A plain integer: what `plain` writes back unchanged, not negative, exact in a double. nil otherwise.
local function integer(text)
  local number = tonumber(text or '')
  if number and number >= 0 and number <= 9007199254740992 and plain(number) == text and text ~= '-0' then
    return number
  end
  return nil
end

-- A time is a plain integer of milliseconds, up to the end of the year 9999, or empty for "none".
local function is_time(text)
  return text == '' or (integer(text) or 253402300800000) < 253402300800000
end

-- The sale's fields, or nil when the copy is not whole; second value: true when there is no sale hash at all.
local function read_copy(sale_key, held_key, buyers_key)
  local f = redis.pcall('HMGET', sale_key, 'state', 'epoch', 'stock', 'ticket', 'quantity', 'opens_at', 'closes_at')
  if f.err then return nil, false end
  local sale = {
    state = f[1], epoch = integer(f[2]), stock = integer(f[3]), ticket = integer(f[4]), quantity = integer(f[5]),
    opens_at = f[6], closes_at = f[7],
  }
  if not (f[1] or f[2] or f[3] or f[4] or f[5] or f[6] or f[7]) then return nil, true end
  local held_epoch = redis.pcall('HGET', held_key, '#epoch')
  local buyers_epoch = redis.pcall('HGET', buyers_key, '#epoch')
  local whole = (sale.state == 'open' or sale.state == 'closed') and sale.epoch and sale.stock and sale.ticket and sale.quantity and sale.quantity > 0
    and is_time(sale.opens_at) and is_time(sale.closes_at)
    and held_epoch == f[2] and buyers_epoch == f[2]
    -- Tickets are numbers of last units; a ticket off the sale's step could overlap its neighbour's units.
    and sale.ticket % sale.quantity == 0
  if not whole then return nil, false end
  return sale, false
end

-- A whole number of JSON, exact in a double.
local function is_count(number)
  return type(number) == 'number' and number >= 0 and number <= 9007199254740992 and number == math.floor(number)
end

-- The hold written under a key, or nil when there is none or it cannot be read.
local function read_hold(held_key, key)
  local text = redis.call('HGET', held_key, key)
  if not text then return nil end
  local readable, hold = pcall(cjson.decode, text)
  if not readable or type(hold) ~= 'table' or not is_count(hold.quantity) or not is_count(hold.epoch)
    or not is_count(hold.ticket) then
    return nil
  end
  return hold
end

-- Redis TIME in milliseconds since 1970.
local function now_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
