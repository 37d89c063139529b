//! The engines of a domain: one, or up to as many as `SRD_ENGINES` says. Each has a messaging layer over an instance of its own, so
//! that threads whose endpoints belong to different engines share no lock. An endpoint belongs to one for life: to the one that
//! fewest endpoints of the process have when it is opened. Its address says which, since its port is of that instance.
//!
//! Registered memory belongs to the domain, so each engine knows of it under the same key.

use crate::bereaved::{self, Bereaved};
use crate::boundary::{Errno, Outcome, refused};
use crate::engine::Engine;
use crate::environment::Place;
use crate::movers::Movers;
use crate::random::random;
use srd_msg::{Counted, RegionId, Registration};
use srd_net::{Instance, ProgressMode, Seat, Unavailable};
use srd_wire::Qpn;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Upper half of the keys that we choose where there may be several engines, or where what peers do is counted, which they learn when they
/// ask what is behind a key: none that a device chooses.
const KEYS: u64 = 0xD352_4500 << 32;

/// See the module.
pub(crate) struct Engines {
    place: Place,
    /// The one that was opened with the domain.
    first: Arc<Engine>,
    /// Its part, until an endpoint gets it.
    seat: Mutex<Option<Seat>>,
    open: Mutex<Open>,
    counts_peers: bool,
    bereaved: Arc<bereaved::List>,
}

/// A registration of a domain.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Region(pub u64);

struct Open {
    engines: Vec<(u16, Arc<Engine>)>,
    regions: HashMap<Region, Registered>,
    next: u64,
}

struct Registered {
    registration: Registration,
    counted: Counted,
    /// With each engine that is open.
    at: Vec<(Arc<Engine>, RegionId)>,
}

fn register(engine: &Engine, registration: &Registration) -> Outcome<(RegionId, u64)> {
    engine.with(|state, device, _| state.messages.register(device, registration).map_err(refused))?
}

fn deregister(engine: &Engine, region: RegionId) -> Outcome<()> {
    engine.given_back(
        engine.with(|state, device, now| state.messages.deregister(device, now, region).map_err(refused)),
    )
}

fn count_in(engine: &Engine, id: RegionId, counted: Counted, region: Region) -> Outcome<()> {
    engine.with(|state, _, _| state.messages.count_in(id, counted, region.0))
}

impl Engines {
    /// With the first of them.
    pub fn open(place: Place, counts_peers: bool) -> Outcome<Engines> {
        let seat = Seat::take(place.local.ip, place.options.engines);
        let bereaved = Arc::new(bereaved::List::default());
        let first = Engine::open(&place, seat.number(), bereaved.clone())?;
        let open = Open { engines: vec![(seat.number(), first.clone())], regions: HashMap::new(), next: 0 };
        Ok(Engines {
            place,
            first,
            seat: Mutex::new(Some(seat)),
            open: Mutex::new(open),
            counts_peers,
            bereaved,
        })
    }

    fn lock(&self) -> Outcome<MutexGuard<'_, Open>> {
        // In a forked child another thread of the parent may have held it.
        match self.first.instance.is_parents() {
            true => Err(Unavailable::Forked.into()),
            false => Ok(self.open.lock().unwrap_or_else(PoisonError::into_inner)),
        }
    }

    fn has_several(&self) -> bool {
        self.place.options.engines > 1
    }

    /// The engine of an endpoint that is opened, and its part in it. `number`: of its queue pair, if the program has chosen one.
    pub fn of_next_endpoint(&self, number: Option<u16>) -> Outcome<(Arc<Engine>, Seat)> {
        drop(self.lock()?); // not in a forked child
        let (ip, options) = (self.place.local.ip, &self.place.options);
        // A port belongs to one instance, with all its numbers.
        let number = number.filter(|_| self.has_several());
        let owner = number.and_then(|number| Instance::number_of_owner(ip, options.port_base, Qpn(number)));
        let owner = owner.filter(|&owner| owner < options.engines);
        let seat = match owner {
            Some(owner) => Seat::take_at(ip, owner),
            None => {
                let first = self.seat.lock().unwrap_or_else(PoisonError::into_inner).take();
                first.unwrap_or_else(|| Seat::take(ip, options.engines))
            }
        };
        Ok((self.numbered(seat.number())?, seat))
    }

    /// The engine over that instance, opened if it is not yet.
    fn numbered(&self, number: u16) -> Outcome<Arc<Engine>> {
        let mut open = self.lock()?;
        if let Some((_, engine)) = open.engines.iter().find(|(known, _)| *known == number) {
            return Ok(engine.clone());
        }
        let engine = Engine::open(&self.place, number, self.bereaved.clone())?;
        let regions = open.regions.values();
        let registered: Outcome<Vec<_>> = regions.map(|it| register(&engine, &it.registration)).collect();
        let registered = registered.inspect_err(|_| engine.close())?;
        for ((region, it), (id, _)) in open.regions.iter_mut().zip(registered) {
            it.at.push((engine.clone(), id));
            count_in(&engine, id, it.counted, *region)?;
        }
        open.engines.push((number, engine.clone()));
        Ok(engine)
    }

    /// Of a new queue or counter.
    pub fn movers(&self) -> Movers {
        let options = &self.place.options;
        Movers::new(self.first.clone(), options.engines, options.progress == ProgressMode::Inline)
    }

    /// Registers memory with each. Returns its key, too.
    pub fn register(&self, mut registration: Registration) -> Outcome<(Region, u64)> {
        let mut open = self.lock()?;
        if (self.has_several() || self.counts_peers) && registration.key.is_none() {
            registration.key = Some(KEYS | u64::from(random()?.get()));
        }
        let mut key = 0;
        let mut at: Vec<(Arc<Engine>, RegionId)> = Vec::new();
        for (_, engine) in &open.engines {
            match register(engine, &registration) {
                Ok((region, chosen)) => {
                    key = chosen;
                    at.push((engine.clone(), region));
                }
                Err(errno) => {
                    at.iter().try_for_each(|(engine, region)| deregister(engine, *region))?;
                    return Err(errno);
                }
            }
        }
        let region = Region(open.next);
        open.next += 1;
        open.regions.insert(region, Registered { registration, counted: Counted::default(), at });
        Ok((region, key))
    }

    /// From now on this is counted that peers do in a registration.
    pub fn count_in(&self, region: Region, counted: Counted) -> Outcome<Vec<Arc<Engine>>> {
        let mut open = self.lock()?;
        let Some(registered) = open.regions.get_mut(&region) else { return Err(Errno::INVALID) };
        registered.counted = counted;
        registered.at.iter().try_for_each(|(engine, id)| count_in(engine, *id, counted, region))?;
        Ok(registered.at.iter().map(|(engine, _)| engine.clone()).collect())
    }

    /// Gives a registration back.
    pub fn deregister(&self, region: Region) -> Outcome<()> {
        let mut open = self.lock()?;
        let Some(registered) = open.regions.get_mut(&region) else { return Err(Errno::INVALID) };
        while let Some((engine, id)) = registered.at.last() {
            deregister(engine, *id)?;
            registered.at.pop();
        }
        open.regions.remove(&region);
        Ok(())
    }

    /// From now on `object` is told if the device fails.
    pub fn tell_of_failure<T: Bereaved + 'static>(&self, object: &Arc<T>) {
        self.bereaved.enter(object);
    }

    /// Gives everything back. Endpoints are closed already.
    pub fn close(&self) {
        // A forked child closes only what it has.
        if let Ok(open) = self.lock() {
            open.engines.iter().for_each(|(_, engine)| engine.close());
        }
    }
}
