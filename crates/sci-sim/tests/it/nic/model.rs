//! What the objects of the interface may do, and what calls come to: the model that the implementations are held
//! against. One node, connected to itself.

use sci_sim::nic::{Code, DmaState};

/// A result without its object.
pub(crate) type Outcome = Result<(), Code>;

#[derive(Clone, Debug)]
pub(crate) struct Local {
    pub(crate) id: u32,
    pub(crate) size: usize,
    pub(crate) prepared: bool,
    pub(crate) available: bool,
    pub(crate) maps: usize,
    pub(crate) transfers: usize,
    pub(crate) connections: usize,
    /// What it holds; nothing where nobody can know.
    pub(crate) bytes: Vec<Option<u8>>,
}

#[derive(Clone, Debug)]
pub(crate) struct Connection {
    /// The number of the local segment.
    pub(crate) segment: usize,
    pub(crate) maps: usize,
    pub(crate) transfers: usize,
}

#[derive(Clone, Debug)]
pub(crate) struct Map {
    pub(crate) connection: usize,
    pub(crate) offset: usize,
    pub(crate) size: usize,
    pub(crate) sequences: usize,
}

#[derive(Clone, Debug)]
pub(crate) struct Queue {
    pub(crate) state: DmaState,
    pub(crate) max: usize,
    /// Local segment, its offset, connection, offset there, size.
    pub(crate) transfers: Vec<(usize, usize, usize, usize, usize)>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    pub(crate) locals: Vec<Option<Local>>,
    pub(crate) local_maps: Vec<Option<usize>>,
    pub(crate) connections: Vec<Option<Connection>>,
    pub(crate) maps: Vec<Option<Map>>,
    /// Per sequence: its map, and whether it was started.
    pub(crate) sequences: Vec<Option<(usize, bool)>>,
    pub(crate) queues: Vec<Option<Queue>>,
}

/// The numbers of what is there.
pub(crate) fn live<T>(table: &[Option<T>]) -> Vec<usize> {
    table.iter().enumerate().filter_map(|(number, entry)| entry.as_ref().map(|_| number)).collect()
}

fn at<T>(table: &mut [Option<T>], number: usize) -> &mut T {
    table[number].as_mut().unwrap()
}

fn range(offset: usize, size: usize, whole: usize, at_multiples: usize, of_multiples: usize) -> Outcome {
    if !offset.is_multiple_of(at_multiples) {
        return Err(Code::OffsetAlignment);
    }
    if size == 0 || !size.is_multiple_of(of_multiples) {
        return Err(Code::SizeAlignment);
    }
    if offset + size > whole { Err(Code::OutOfRange) } else { Ok(()) }
}

impl Model {
    pub(crate) fn local(&mut self, number: usize) -> &mut Local {
        at(&mut self.locals, number)
    }

    pub(crate) fn create(&mut self, id: u32, size: usize, illegal: bool, limit: usize) -> Outcome {
        if illegal {
            return Err(Code::IllegalFlag);
        }
        if size == 0 || !size.is_multiple_of(4) {
            return Err(Code::SizeAlignment);
        }
        if self.locals.iter().flatten().any(|local| local.id == id) {
            return Err(Code::SegmentIdUsed);
        }
        if size > limit {
            return Err(Code::NoSpace);
        }
        let bytes = vec![Some(0); size];
        let (prepared, available, maps, transfers, connections) = (false, false, 0, 0, 0);
        self.locals.push(Some(Local { id, size, prepared, available, maps, transfers, connections, bytes }));
        Ok(())
    }

    pub(crate) fn prepare(&mut self, number: usize) -> Outcome {
        let local = self.local(number);
        if std::mem::replace(&mut local.prepared, true) { Err(Code::Busy) } else { Ok(()) }
    }

    pub(crate) fn map_local(&mut self, number: usize, offset: usize, size: usize) -> Outcome {
        let local = self.local(number);
        if !local.prepared {
            return Err(Code::SegmentNotPrepared);
        }
        range(offset, size, local.size, 8, 4)?;
        local.maps += 1;
        self.local_maps.push(Some(number));
        Ok(())
    }

    pub(crate) fn unmap_local(&mut self, map: usize) -> Outcome {
        let segment = self.local_maps[map].unwrap();
        let local = self.local(segment);
        if local.connections > 0 {
            return Err(Code::Busy);
        }
        local.maps -= 1;
        self.local_maps[map] = None;
        Ok(())
    }

    pub(crate) fn offer(&mut self, number: usize, available: bool) -> Outcome {
        let local = self.local(number);
        if !local.prepared {
            return Err(Code::SegmentNotPrepared);
        }
        local.available = available;
        Ok(())
    }

    pub(crate) fn remove(&mut self, number: usize) -> Outcome {
        let local = self.local(number);
        if local.maps + local.transfers + local.connections > 0 {
            return Err(Code::Busy);
        }
        self.locals[number] = None;
        Ok(())
    }

    pub(crate) fn connect(&mut self, id: u32) -> Outcome {
        let found = self.locals.iter().position(|local| local.as_ref().is_some_and(|local| local.id == id));
        let segment = found.ok_or(Code::NoSuchSegment)?;
        if !self.local(segment).available {
            return Err(Code::ConnectionRefused);
        }
        self.local(segment).connections += 1;
        self.connections.push(Some(Connection { segment, maps: 0, transfers: 0 }));
        Ok(())
    }

    pub(crate) fn map_remote(&mut self, connection: usize, offset: usize, size: usize) -> Outcome {
        let segment = at(&mut self.connections, connection).segment;
        range(offset, size, self.local(segment).size, 4, 4)?;
        at(&mut self.connections, connection).maps += 1;
        self.maps.push(Some(Map { connection, offset, size, sequences: 0 }));
        Ok(())
    }

    pub(crate) fn unmap_remote(&mut self, map: usize) -> Outcome {
        let Map { connection, sequences, .. } = *at(&mut self.maps, map);
        if sequences > 0 {
            return Err(Code::Busy);
        }
        at(&mut self.connections, connection).maps -= 1;
        self.maps[map] = None;
        Ok(())
    }

    pub(crate) fn disconnect(&mut self, connection: usize) -> Outcome {
        let Connection { segment, maps, transfers } = *at(&mut self.connections, connection);
        if maps + transfers > 0 {
            return Err(Code::Busy);
        }
        self.local(segment).connections -= 1;
        self.connections[connection] = None;
        Ok(())
    }

    pub(crate) fn store(&mut self, map: usize, offset: usize, bytes: &[u8]) -> Outcome {
        let Map { connection, offset: base, size, .. } = *at(&mut self.maps, map);
        if offset + bytes.len() > size {
            return Err(Code::OutOfRange);
        }
        let segment = at(&mut self.connections, connection).segment;
        let goal = &mut self.local(segment).bytes[base + offset..][..bytes.len()];
        goal.iter_mut().zip(bytes).for_each(|(goal, byte)| *goal = Some(*byte));
        Ok(())
    }

    pub(crate) fn enqueue(
        &mut self,
        queue: usize,
        local: usize,
        offset: usize,
        connection: usize,
        goal: usize,
        size: usize,
    ) -> Outcome {
        let segment = at(&mut self.connections, connection).segment;
        let goal_size = self.local(segment).size;
        let Local { prepared, size: whole, .. } = *self.local(local);
        let entry = at(&mut self.queues, queue);
        if !matches!(entry.state, DmaState::Idle | DmaState::Gather) {
            return Err(Code::Busy);
        }
        if entry.transfers.len() == entry.max {
            return Err(Code::NoSpace);
        }
        if !prepared {
            return Err(Code::SegmentNotPrepared);
        }
        range(offset, size, whole, 64, 64)?;
        range(goal, size, goal_size, 64, 64)?;
        entry.transfers.push((local, offset, connection, goal, size));
        entry.state = DmaState::Gather;
        self.local(local).transfers += 1;
        at(&mut self.connections, connection).transfers += 1;
        Ok(())
    }

    /// All transfers have been done, or, if aborted, nobody knows which.
    pub(crate) fn transferred(&mut self, queue: usize, aborted: bool) {
        let entry = at(&mut self.queues, queue);
        entry.state = if aborted { DmaState::Aborted } else { DmaState::Done };
        let transfers = entry.transfers.clone();
        let mut goals = Vec::new();
        for (_, _, connection, goal, size) in &transfers {
            goals.push((at(&mut self.connections, *connection).segment, *goal, *size));
        }
        for (local, offset, connection, goal, size) in transfers {
            // What is read and written by one queue may be read before or after it is written.
            let mixed = goals
                .iter()
                .any(|(segment, begin, len)| *segment == local && offset < begin + len && *begin < offset + size);
            let data: Vec<_> = self.local(local).bytes[offset..offset + size].to_vec();
            let segment = at(&mut self.connections, connection).segment;
            let place = &mut self.local(segment).bytes[goal..goal + size];
            place.iter_mut().zip(data).for_each(|(place, byte)| *place = byte.filter(|_| !aborted && !mixed));
        }
    }

    pub(crate) fn empty(&mut self, queue: usize) {
        let entry = at(&mut self.queues, queue);
        entry.state = DmaState::Idle;
        for (local, _, connection, ..) in std::mem::take(&mut entry.transfers) {
            self.local(local).transfers -= 1;
            at(&mut self.connections, connection).transfers -= 1;
        }
    }
}
