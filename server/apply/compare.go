package apply

import "reflect"

// compare returns the value that a field gets; nil if the field stays as it is. usual is the value of the field where the document
// leaves it out, if apply has created the object.
func compare[T any](i *item, name string, given *T, before, usual T) *T {
	value := given
	switch {
	case i.isNew:
		if given != nil {
			i.fields = append(i.fields, field{name, nil, *given})
		}
		return given
	case value == nil && i.applied:
		value = &usual
	case value == nil:
		return nil
	}
	if reflect.DeepEqual(*value, before) {
		return nil
	}
	i.fields = append(i.fields, field{name, before, *value})
	return value
}

// compareLimit is compare for a limit, where null means that there is none. Its usual value is null.
func compareLimit(i *item, name string, isGiven bool, given, before *int64) (isSet bool, value *int64) {
	if !isGiven {
		if changed := compare(i, name, nil, before, nil); changed != nil {
			return true, *changed
		}
		return false, nil
	}
	changed := compare(i, name, &given, before, nil)
	return changed != nil, given
}

// valueOf returns the value of a field, or its zero value.
func valueOf[T any](field *T) (value T) {
	if field != nil {
		value = *field
	}
	return value
}
